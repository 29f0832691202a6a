"""Cut a SELECT over one table into a partial statement for each piece of it, and a final one.

- `shape`: what a statement is: its items, groups, conditions, order and limits, with names resolved
- `aggregates`: how each aggregate is computed from those of pieces
- `texts`: the SQL of the partial and of the final statement

Nothing here knows types but those that it is shown: `statements.child.cuts` asks DataFusion for
them, and has it confirm that the parts say what the whole says.
"""
