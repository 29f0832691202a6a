"""Dropped files become sorted shards, each file exactly once."""
