"""A data root in a folder that is read as one on another machine is."""

from __future__ import annotations

from pathlib import Path

from dormouse.storage import FolderStorage


class DistantFolder(FolderStorage):
    """A folder whose objects are no files of this machine, so that what is merged is copied."""

    def link(self, path: str, local: Path) -> bool:
        """Return False."""
        return False
