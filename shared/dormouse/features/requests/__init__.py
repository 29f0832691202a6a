"""What requests of all kinds share.

- `resolve_table`: bind a request to the table that it names.
- `work`: the jobs that a request causes, as they are stored.
- `outcomes`: check how those jobs ended.
- `request_objects`: objects stored for a request beside its table.
- `request_paths`: the paths of those objects.
"""
