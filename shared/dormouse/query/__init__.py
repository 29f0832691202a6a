"""Rows and counts of one version of a table, by key ranges and conditions.

- `selection`: which rows and columns of which version are asked for, its one stored form, and the
  slices of shards that contain them
- `rows`: answer a query, or count its rows
- `result`: the rows of a query as an Arrow stream
"""
