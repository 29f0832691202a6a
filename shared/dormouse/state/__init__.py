"""The state of a table: what it is, which changes there are, and what each may do.

- `partitions`, `sources`, `versions`, `jobs`: its parts
- `state`: the state, and the changes of it, which are stored as they are
- `fold`, `rules`, `validation`: one pure function from a state and an entry of the log to the next
  state and a verdict
- `store`: a store of states as callers see it
"""
