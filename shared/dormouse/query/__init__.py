"""Rows and counts of one version of a table, by key ranges and conditions.

- `selection`: which rows and columns of which version are asked for, one value for every caller
- `selection_codec`: its one form in messages and stored objects
- `planner`: make a selection, and find the slices of shards that contain its rows
- `rows`: answer a query
- `count`: count rows, reading as few of them as possible
- `result`: the rows of a query as an Arrow stream
"""
