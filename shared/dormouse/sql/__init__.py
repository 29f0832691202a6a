"""Conditions on rows: SQL text is parsed to a checked tree of expressions, which bounds the keys.

- `conditions`: `Condition`, the parsed form that queries, purges and row rules carry
- `parser`: SQL text to a checked tree; only listed operators and functions pass
- `text`: limits on the text of a condition, and the call of the SQL parser
- `paths`: columns, members of structs, elements of lists, values of maps
- `calls`, `functions`: functions, CASE, and calculations with times
- `casts`: which types can be cast
- `times`: intervals, and the units that times are cut to
- `literals`: literals of a parsed condition, with types
- `constants`: constants as values of the types that they are compared with
- `expressions`: the nodes of a tree, and rendering it as normal SQL
- `text_limits`: how long a text may be
- `plain`: usual conditions, without the SQL parser
- `key_bounds`: the key ranges, and the range of one column, that a condition leaves possible
"""
