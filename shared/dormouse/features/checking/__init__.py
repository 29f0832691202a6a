"""Compare a table's state with its stored objects, and handle damaged shards.

- `check`: the comparison, object by object.
- `findings`: the kinds of damage, what to do about each, and the rules that find them.
- `disputes`: disputed shards, which are kept until a person acknowledges them.
"""
