"""Rows as Arrow batches.

- `types`: table schemas, columns and keys as Arrow types and values
- `order`: the sort order of batches, and positions of keys in them
- `ranges`: key ranges as predicates over columns
- `total_order`: sorting and equality of cells of every type
- `statistics`: bounds on keys from the statistics of row groups
- `evolution`: columns of a shard found by field id, after changes of the schema
- `decimals`: text parsed as exact decimals
- `row_counter`: count the rows of a stream
"""
