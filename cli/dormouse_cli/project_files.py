"""The files of the project that are deployed: template, functions, recipes of layers, Spark's jobs.

A wheel has them below `dormouse_cli/project`, a checkout at its root. `setup.py` reads `FILES` from
here before anything is installed, so this module imports nothing but the standard library.
"""

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

TEMPLATE = "template.yaml"
FILES = (
    TEMPLATE,
    "samconfig.toml",
    "functions/*/*.py",
    "shared/Makefile",
    "shared/*.py",
    "shared/*.txt",
    "spark/bulk_import.py",
    "spark/compact.py",
    "spark/export_rows.py",
    "spark/statement.py",
)
"""What a wheel carries besides its packages, as patterns below the root of a checkout."""
PACKAGES = {"dormouse": "shared", "dormouse_spark": "spark"}
"""The packages that layers are built of, and the folders in which their recipes look for them."""


def find_project() -> Path | None:
    """Return the folder of the template that this package was installed with, or that of the
    checkout it lies in; None if there is neither.
    """
    here = Path(__file__).resolve()
    folders = (here.parent / "project", *here.parents)
    return next((folder for folder in folders if (folder / TEMPLATE).is_file()), None)


def write_project(project: Path, target: Path) -> int:
    """Write what `sam build` needs into a new folder, or one that is empty; return how many files.

    The folder has all of them or does not change.
    Raises OSError: it cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        copy_root = Path(scratch) / "project"
        for path in sorted(path for pattern in FILES for path in project.glob(pattern)):
            copy = copy_root / path.relative_to(project)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        for package, folder in PACKAGES.items():
            sources = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_folder_of(package), copy_root / folder / package, ignore=sources)
        copy_root.rename(target)
    return sum(path.is_file() for path in target.rglob("*"))


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is part of every wheel"
    return Path(spec.origin).parent
