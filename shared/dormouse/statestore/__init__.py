"""The state of a table, as a log of transactions that every process folds alike.

- `engine`: the state store: it reads, commits, and maintains the log.
- `group_commit`: threads that commit at the same time share one delta.
- `log`: the order of commits, its tail, its compaction and its garbage collection.
- `deltas`, `segments`: the stored forms of a commit, and of many commits.
- `snapshot`: the stored form of a whole state.
- `blobs`, `object_blobs`: the port for deltas, segments and snapshots, and its objects.
- `source_lookup`, `source_codec`: ingested sources that the state no longer holds by itself.
- `parquet_file`: what all stored Parquet files of a state have in common.
"""
