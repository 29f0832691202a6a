"""Copy a table to another instance.

- `copy_table`: copy all that a table is, and register the copy when all of it is there.
- `copy_objects`: copy shards, run markers and segments of sources, each verified.
- `plan_copy`: the state of the copy, planned from a state of the source.
"""
