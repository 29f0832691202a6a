"""The shard: an immutable Parquet file of sorted rows.

- `writer`: divide sorted rows into shards, and upload them; `parquet`: the layout of the file
- `footer`, `stored_index`: what a shard says about itself, and the keys of its row groups
- `crcs`, `thrift`: the CRC of each section; the structs by which Parquet describes pages
- `reading`, `decoding`, `local_copies`: verified reads of row groups, of pages, and for merges
- `run_markers`: objects that say that a run has written all its shards
"""
