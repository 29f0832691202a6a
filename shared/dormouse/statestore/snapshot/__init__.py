"""Snapshots: the stored form of a whole state, which serves from memory as it was read.

- `codec`: a state as one Parquet file, and back; `items`: the rows in it.
- `changes`: what changed between two states, as rows; `increments`: their stored form; `applying`:
  the rows of a snapshot with such changes.
- `columns`: columns as the base of a state's maps.
- `digests`: ids of 32 hex digits as 16 bytes.
- `disputes`: rows taken of shards, and disputes over them.
- `sealed`: sealed sources.
- `trimming`: what a snapshot drops of a state.
"""
