"""Takes out of a layer what no function needs at run time.

Called by the Makefile beside it: ``prune_layer.py FOLDER ARCHITECTURE``. Whether a function and its
layers fit what Lambda allows is checked when all are built (tools/layer_sizes.py).
"""

import shutil
import subprocess
import sys
from pathlib import Path

FOLDERS = ("tests", "test", "include", "src", "includes", "__pycache__", "bin")
FILES = ("*.pyi", "*.pyx", "*.pxd", "*.pxi", "*.h", "*.a")
PARTS_OF_PYARROW = (
    "libarrow_flight*",
    "libarrow_python_flight*",
    "_flight*",
    "flight*",
    "_substrait*",
    "substrait.py",
    "_orc*",
    "orc.py",
    "_hdfs*",
    "libparquet_encryption*",
    "libarrow_s3*",
)
"""What pyarrow runs without: it loads its own client of S3 on demand.
libarrow_substrait must stay: every extension is linked with it."""

SERVICES = ("cloudwatch", "dynamodb", "emr-serverless", "glue", "kms", "s3", "sqs", "sts")
"""Those of AWS that the library makes clients of; botocore describes 400 more, in 20 MB."""


def main(folder: Path, architecture: str) -> None:
    """Prune `folder` and print its size."""
    before = size_bytes(folder)
    for name in FOLDERS:
        for path in [*folder.rglob(name)]:
            if path.is_dir():
                shutil.rmtree(path)
    unneeded = {path for pattern in FILES for path in folder.rglob(pattern)}
    unneeded |= {path for part in PARTS_OF_PYARROW for path in folder.glob(f"pyarrow/{part}")}
    for path in unneeded:
        path.unlink()
    for path in sorted(folder.rglob("*/"), reverse=True):
        if not any(path.iterdir()):  # stubs alone, in a folder of their own
            path.rmdir()
    drop_services(folder / "botocore" / "data")
    drop_copies_of_libraries(folder / "pyarrow")
    if architecture == "x86_64" and shutil.which("strip"):
        for path in folder.rglob("*.so*"):
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)
    after = size_bytes(folder)
    print(f"{folder}: {before / 1e6:.1f} MB, pruned to {after / 1e6:.1f} MB")


def drop_services(described: Path) -> None:
    """Keep the descriptions of the services that are used, and what is of no single service."""
    for path in [*described.glob("*/")]:
        if path.name not in SERVICES:
            shutil.rmtree(path)


def drop_copies_of_libraries(pyarrow: Path) -> None:
    """Keep only the second of libX.so, libX.so.2600 and libX.so.2600.1.0: the name linked."""
    for path in [*pyarrow.glob("lib*.so*")]:
        suffix = path.name.partition(".so")[2]
        if suffix.count(".") != 1 and [*pyarrow.glob(path.name.partition(".so")[0] + ".so.*")]:
            path.unlink()


def size_bytes(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
