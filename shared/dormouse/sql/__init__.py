"""Conditions on rows: SQL text parsed to a tree of expressions, and the keys that it bounds."""
