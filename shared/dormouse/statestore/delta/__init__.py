"""Deltas: the stored forms of what one commit changes.

- `rows`: a row for each transaction; `columns`: the Arrow types of its fields.
- `codec`: the stored form of one delta.
- `segments`: many deltas in one file.
"""
