"""Dormouse: a serverless, log-structured table store on S3.

A map of the packages, lowest layer first; a module imports only from its own layer and lower ones:

- `errors`, `settings`, `system`: errors by what a caller does next; the settings of a process; its
  clock, ids and retries
- `keys`, `schema`, `key_codec`, `sql`: keys as bytes; column types; every form of a key; conditions
- `stored`, `storage`: names, checksums, strict decoding; data roots
- `tables`, `access`: properties and row rules of a table; who may do what
- `state`, `messages`, `ports`, `log`: the state of a table and its changes; messages between
  stages; what stages need of the world; how changes are ordered, stored and read back
- `arrow`, `shards`, `rows`, `files`: rows as batches; Parquet shards; sorting and merging; files in
  and out
- `query`, `statements`, `iceberg`: queries, SQL, and metadata for other engines
- `jobs`, `features`: what all jobs share; a module or two for each feature
- `items`, `aws`, `folder`: small items that change in place; adapters for AWS and for a folder
- `http`, `console`, `client`: requests and a local server; a page for people; the Python API
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dormouse.client.instance import Instance

__all__ = ["Instance", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Return `Instance`, imported at its first use: functions load no client."""
    if name != "Instance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dormouse.client.instance import Instance

    return Instance
