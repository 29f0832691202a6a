"""Small items, written conditionally: the registry, the tracker, pins, publications, log pages.

- `store`: the port `ItemStore`, which DynamoDB and SQLite implement, and the checksums of items.
- `tables`, `table_items`, `table_repair`, `tombstones`: the registry of tables.
- `tracker`: the records of jobs.
- `pages`, `packed_manifest`, `pins`: the log of each table's state, and the pins of its versions.
- `publications`: what is published for readers of Iceberg.
"""
