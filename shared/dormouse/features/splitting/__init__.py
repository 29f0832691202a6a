"""Split partitions that have too many rows.

- `split_partition`: split leaves at their median keys; `planning.splitting` chooses the key.
- `extending`: choose splits before a large import, so that many tasks can write it.
- `request`: the request ``split_partitions``.
"""
