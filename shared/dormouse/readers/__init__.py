"""Reads of shards, each byte verified by a checksum before it is used.

- `reading`: find the row groups that can hold the rows of key ranges
- `row_reads`: fetch row groups that were found, and decode their rows
- `decoding`: decode the rows of one shard, whole row groups or only some pages
- `excerpts`: small Parquet files in memory, of some pages of a shard
- `threads`: tasks of one query, in threads that end with it
- `ranged_reads`: fetch sections of a shard in few ranged reads
- `read_plan`: decide what a query reads at once, and what it streams
- `local_copies`: fetch what a merge reads to local files, ahead of the merge
- `auditing`: verify every byte of a shard
- `read_counters`: count what a query reads
"""
