"""Packs DataFusion in a layer: ``pack_datafusion.py FOLDER``. What unpacks it is beside this file.

Called by the Makefile beside it. The same files make the same bytes, and so the same layer.
"""

import shutil
import sys
import zipfile
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can have."""


def main(folder: Path) -> None:
    """Replace the package `datafusion` in a folder by an archive, and a module that unpacks it."""
    package = folder / "datafusion"
    with zipfile.ZipFile(folder / "datafusion.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in package.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())
    shutil.rmtree(package)
    shutil.copyfile(Path(__file__).with_name("packed_datafusion.py"), folder / "datafusion.py")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
