"""Small items, written conditionally: registry, tracker, pins, publications, logs, blobs of states.

- `store`: the port `ItemStore`, which DynamoDB and SQLite implement, and the checksums of items.
- `tables`, `table_items`, `table_repair`, `tombstones`: the registry of tables.
- `tracker`: the records of jobs.
- `pages`, `packed_manifest`, `pins`: the log of each table's state, and the pins of its versions.
- `blobs`: deltas, segments and snapshots, and the state store of items alone.
- `publications`: what is published for readers of Iceberg.
"""
