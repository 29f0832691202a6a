"""The state store of a folder: deltas, segments and snapshots are files, the log is in SQLite.

Deltas are packed: a laptop's process begins cold each time, and reads them in a tenth of the CPU
time that the Parquet form takes.
"""

from __future__ import annotations

from dormouse.statestore.delta.packed_codec import PACKED
from dormouse.statestore.object_store import ObjectStateStore


class FolderStateStore(ObjectStateStore):
    """The engine over files of the data root."""

    codec = PACKED
