"""Plan the compactions and splits that are due for a table, and assign their jobs.

- `plan_table`: plan a table that changed.
- `compaction`, `retention`: the policies that choose which shards are merged or rewritten.
- `splitting`: the policy that chooses which leaves are split, and at which key.
- `assign_jobs`: assign planned compactions in the state and return their messages.
"""
