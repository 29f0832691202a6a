"""The shard: an immutable Parquet file of sorted rows.

- `writing`: divide sorted rows into shards, and upload them
- `shard_writer`: one shard while it is written, and its upload
- `parquet`: the layout of the Parquet file
- `samples`: samples of a shard's keys, taken while it is written
- `footer`: what the footer of a shard says about it
- `crcs`: the CRC of each section of a shard
- `index`: the key ranges of a shard's row groups
- `pages`: the pages of a column chunk
- `thrift`: the structs by which Parquet describes pages and columns
- `run_markers`: objects that say that a run has written all its shards
"""
