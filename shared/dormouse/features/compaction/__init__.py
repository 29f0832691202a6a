"""Merge the shards of a partition into larger ones (LSM compaction), one assigned job at a time.

- `compact`: run a job: merge its inputs and commit the outputs in one transaction.
- `compact_in_steps`: run a job as functions do, and divide it by key if it is too large.
- `steps`: the steps of such a job and their stored outcomes.
- `merge`: merge the inputs, or a key range of them, into shards.
- `slicing`: divide the keys of a merge or an import into tasks of about equal rows.
- `request`: the request ``compact_table``.

`planning.compaction` chooses which shards are merged.
"""
