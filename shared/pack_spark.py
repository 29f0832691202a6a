"""Packs what Spark jobs need on EMR: ``pack_spark.py ENVIRONMENT ENTRY_POINTS PACKAGE``.

Called by the Makefile beside it, and by the local stack. The folder ENVIRONMENT, with the library
and its packages, becomes an archive in the folder PACKAGE, beside the entry points. The same files
make the same bytes, and so the same version. `features.spark` reads what is written.
"""

import gzip
import json
import shutil
import sys
import tarfile
from hashlib import blake2b
from pathlib import Path

from dormouse.settings import library_version

ENTRY_POINTS = ("bulk_import.py", "compact.py", "export_rows.py", "statement.py")
ARCHIVE = "environment.tar.gz"


def main(environment: Path, entry_points: Path, package: Path) -> None:
    """Make a package, and print its versions and size."""
    package.mkdir(parents=True)
    pack(environment, package / ARCHIVE)
    for name in ENTRY_POINTS:
        shutil.copyfile(entry_points / name, package / name)
    digest, files = blake2b(digest_size=8), {}
    for name in (ARCHIVE, *ENTRY_POINTS):
        body = (package / name).read_bytes()
        digest.update(f"{name} {len(body)}\n".encode() + body)
        files[name] = len(body)
    library = library_version(environment / "dormouse")
    manifest = {"library": library, "version": digest.hexdigest(), "files": files, "v": 1}
    (package / "package.json").write_text(json.dumps(manifest))
    size_bytes = files[ARCHIVE]
    print(
        f"{package}: version {manifest['version']} of library {library}, {size_bytes / 1e6:.1f} MB"
    )


def pack(folder: Path, archive: Path) -> None:
    """Write the files of a folder, without their owners and times."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            if "__pycache__" in path.parts or not path.is_file():
                continue
            member = tar.gettarinfo(path, path.relative_to(folder).as_posix())
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            member.mode = 0o644
            with path.open("rb") as content:
                tar.addfile(member, content)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
