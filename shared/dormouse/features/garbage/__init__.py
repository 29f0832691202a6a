"""Shards that nothing references any more, deleted after a delay."""
