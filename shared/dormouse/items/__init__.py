"""Small items, written conditionally: registry, records, logs, blobs of states.

- `store`: the port `ItemStore`, which DynamoDB and SQLite implement, and the checksums of items.
- `tables`, `tombstones`: the registry of tables.
- `records`: the records of jobs, the pins of versions, what is published for readers of Iceberg.
- `pages`: the log of each table's state.
- `subjects`: the keys of subjects, of encrypted columns.
- `blobs`: deltas, segments and snapshots, and the state store of items alone.
"""
