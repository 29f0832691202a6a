"""Rows as Arrow batches: types, order, key ranges as predicates, statistics."""
