"""Write a statement so that DataFusion returns the rows that its words mean.

- `dialect`: the dialect of statements, whose parser notes where in the text expressions are
- `edits`: changes of a text, by position
- `sources`, `kinds`: which types expressions have, as far as it matters
- `floats`, `numbers`: what is written otherwise where operands are floats or decimals
- `rewriting`: all of it

What is not surely known is left as it is written.
"""
