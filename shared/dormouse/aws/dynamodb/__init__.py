"""Small items and states of tables as items of DynamoDB.

- `items`: the store of all small items (`dormouse.items`).
- `state.state_store`: the state store; `state.blobs`: its deltas, segments and snapshots.
- `stored_items`: the format number and the checksum that the items of blobs have.
- `batch_deletes`: deletion of many items.
"""
