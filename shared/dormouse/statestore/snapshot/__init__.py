"""Snapshots: the stored form of a whole state, which serves from memory as it was read.

- `codec`: a state as one Parquet file, and back; `items`: the rows in it.
- `changes`: what changed between two states, its stored form, and how it is laid over a snapshot.
- `columns`, `maps`: columns as the base of a state's maps.
"""
