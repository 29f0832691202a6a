"""What requests of all kinds share.

- `resolve_table`: bind a request to the table that it names.
- `work`: the jobs that a request causes, as they are stored.
- `ends`: how those jobs ended.
- `kept`: objects stored for a request beside its table.
- `request_names`: the paths of those objects, and the ids of requested jobs.
"""
