"""Versions of a table that are kept, by name.

- `tags`: the requests ``tag_version`` and ``untag_version``.
"""
