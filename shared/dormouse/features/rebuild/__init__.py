"""Rebuild a lost state from the footers of the shards.

- `rebuild`: read the footers, commit the planned state to a new log, and register that log.
- `plan_rebuild`: decide which rows of which shards belong to the table.
- `choose_runs`: choose the runs whose shards count.
- `duplicate_shards`: find the shards of a run whose rows other shards of the same run have.
- `new_state`: the transactions that make the planned state.
"""
