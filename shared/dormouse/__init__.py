"""Dormouse: a serverless, log-structured table store on S3.

A map of the packages, lowest layer first; a module imports only from its own layer and lower ones:

- `errors`, `cache`, `library`, `readahead`: errors by what a caller does next; a cache of stored
  objects; the version of the library; a stream read ahead on another thread
- `keys`, `schema`, `sql`: keys and key ranges; column types and schemas; conditions on rows
- `key_forms`: every form of a key, behind the `KeyCodec` of a schema
- `stored`: names of objects and resources, checksums, strict decoding
- `tables`: what a table is: properties, row rules, changes of its schema
- `model`, `fold`: the state of a table, its transactions, and the fold that judges and applies them
- `state_store`, `messages`, `requests`, `replies`, `ports`: the interfaces between stages and the
  world
- `storage`, `profiles`, `settings`, `system`: data roots in a folder or in memory; which instance
  is meant; the settings of a process; its clock and ids
- `statestore`: how transactions are ordered, stored and read back
- `arrow`: rows as Arrow batches: order, ranges, statistics
- `shards`, `readers`, `engine`, `sources`: Parquet shards; reading them; sorting and merging;
  ingested files
- `query`: plan and read queries
- `jobs`, `features`: what all jobs share; one package for each feature
- `aws`, `folder`, `client`: adapters for AWS, and the Lambda entry points; adapters for a folder;
  the Python API
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dormouse.client import Instance

__all__ = ["Instance", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Return `Instance`, imported at its first use: functions load no client."""
    if name != "Instance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dormouse.client import Instance

    return Instance
