"""Computations on batches of rows: sort, merge, filter, aggregate.

- `datafusion`: the settings of DataFusion, sorted files as frames, merge plans
- `merging`: merge slices of shards into one stream in key order
- `merge_levels`: merge many inputs in levels, so that what is held of them is bounded
- `merge_windows`: divide a merge into ranges of keys, so that each fits into memory
- `stored_plans`: change a plan in its serialized form: read only some row groups, join batches
- `pruning`: skip row groups by the bounds that a condition sets for value columns
- `predicates`: evaluate SQL conditions with DataFusion
- `row_rules`: apply the filters and aggregations of a table to a sorted stream
- `aggregation`: reduce the rows of each group to one row
- `sorting`: external sort of any number of rows in bounded memory
"""
