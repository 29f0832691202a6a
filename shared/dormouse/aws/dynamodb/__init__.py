"""The registry of tables, the tracker of jobs and the state store, as items of DynamoDB.

- `tables`: the registry; `table_items`, `table_survey`, `table_repair`: its items, their listing,
  and their repair from copies.
- `tombstones`: the ids of deleted tables, so that no late writer revives one.
- `tracker`, `job_items`: the records of jobs.
- `state_store`: the state store; `log_pages`, `log_items`: its log; `blobs`: its deltas, segments
  and snapshots.
- `stored_items`: the format number and the checksum that every item has.
- `batch_deletes`: deletion of many items.
"""
