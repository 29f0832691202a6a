"""Deltas: the stored forms of what one commit changes.

- `rows`: a row for each transaction; `columns`: the Arrow types of its fields.
- `codec`: the port; `parquet_codec` and `packed_codec` implement it.
- `segments`: many deltas in one file.
"""
