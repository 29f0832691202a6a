"""Conditions on rows: SQL text is parsed to a checked tree of expressions, which bounds the keys.

- `conditions`: `Condition`, the parsed form that queries, purges and row rules carry, and its nodes
- `parser`, `calls`, `operands`: SQL text to a checked tree; only what is listed passes
- `key_bounds`: the key ranges, and the range of one column, that a condition leaves possible
"""
