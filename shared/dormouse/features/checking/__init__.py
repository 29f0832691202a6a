"""Compare a table's state with its stored objects, and handle damaged shards.

- `check`: compare them, object by object.
- `findings`: the kinds of damage, and what to do about each.
- `disputes`: disputed shards, which are kept until a person acknowledges them.
"""
