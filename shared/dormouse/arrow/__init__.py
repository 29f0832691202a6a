"""Rows as Arrow batches.

- `types`: table schemas as Arrow types; columns of a shard found by field id
- `values`: exact decimals, inferred types, sorting and equality of cells of every type
- `order`: the sort order of batches, key ranges as predicates, bounds from statistics
"""
