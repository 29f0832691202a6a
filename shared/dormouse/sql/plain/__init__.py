"""Plain SQL: read without a parser of all SQL, which takes longer to import than a look-up takes.

- `tokens`: the tokens that every parser of SQL takes for the same
- `conditions`: plain conditions, as checked trees
"""
