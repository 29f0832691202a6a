"""Builds the package; all that is declared about it is in pyproject.toml.

A wheel also carries what is deployed and what the local stack runs, below `dormouse_cli/project`:
the template, the functions, the entry points of Spark jobs, the recipes of the layers. In a
checkout these lie at its root, where an editable install finds them.
"""

from pathlib import Path
from runpy import run_path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PROJECT = run_path(str(ROOT / "cli" / "dormouse_cli" / "project_files.py"))["FILES"]


class BuildWithProject(build_py):
    """Builds the packages, with the project's own files beside the command line."""

    def run(self) -> None:
        """Copy the modules, and for a wheel the files of `PROJECT`."""
        super().run()
        if self.editable_mode:
            return
        for path in (path for pattern in PROJECT for path in sorted(ROOT.glob(pattern))):
            target = Path(self.build_lib, "dormouse_cli", "project", path.relative_to(ROOT))
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": BuildWithProject})
