"""Plain SQL: read without a parser of all SQL, which takes longer to import than a look-up takes.

- `tokens`: the tokens that every parser of SQL takes for the same
- `reading`: the parts of a text that may be a plain statement
- `statements`: plain statements, those that one scan answers
- `conditions`: plain conditions, as checked trees
"""
