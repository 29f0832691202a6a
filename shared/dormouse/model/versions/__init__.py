"""Versions of a table as values: how one is named, pinned, published, and known to its shards."""
