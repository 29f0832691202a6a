"""The state of a table and the transactions that change it. Values only, no I/O.

- `state`: `TableState`, a table at one version
- `transactions`: the changes that a state can undergo, and their ids
- `partitions`: the partition tree
- `shards`: shards, references to them, jobs
- `overlay_map`: an immutable map of changes over a base
- `disputes`: rows taken from shards by jobs, and shards that must not be deleted
- `sources`: ingested objects and their ids; `source_segments`: sealed segments of ids
- `jobs`: what happens to a job, folded to its record; metrics; which jobs Spark does
- `versions`: how a version is named, pinned and published; what a shard's footer says of its origin
"""
