"""The state of a table and the transactions that change it. Values only, no I/O.

- `state`: `TableState`, a table at one version
- `transactions`: the changes that a state can undergo, and their ids
- `partitions`: the partition tree
- `shards`: shards, references to them, jobs
- `overlay_map`: an immutable map of changes over a base
- `disputes`: rows taken from shards by jobs, and shards that must not be deleted
- `sources`: ingested objects and their ids; `source_segments`: sealed segments of ids
- `provenance`: what the footer of a shard says about its origin
- `job_records`: the record of a job; `job_events`: what happens to a job, folded to its record
- `metrics`: the metrics of a table
- `spark_threshold`: which jobs Spark does, and with how large a cluster
"""
