"""What lies where in the folder of an instance."""

from dataclasses import dataclass
from pathlib import Path

DATABASE = "dormouse.sqlite"
"""The file by which a folder is known to be an instance."""


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """The files and folders of an instance below its `root`."""

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / DATABASE

    @property
    def tables(self) -> Path:
        """The data root: a folder for each table id."""
        return self.root / "tables"

    @property
    def inbox(self) -> Path:
        """Where files to ingest are put, in a folder named after their table."""
        return self.root / "inbox"

    @property
    def exports(self) -> Path:
        """Where exported rows are written."""
        return self.root / "exports"

    @property
    def logs(self) -> Path:
        """What runs of Spark printed that failed."""
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        """Temporary files: on the disk of the shards, so that a file becomes one without a copy."""
        return self.root / ".scratch"

    @property
    def processes(self) -> Path:
        """A locked file for each process that uses the folder."""
        return self.root / ".processes"
