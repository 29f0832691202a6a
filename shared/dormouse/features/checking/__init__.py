"""A table's shards held against its state, and damaged shards set aside."""
