"""The key index of snapshots and increments: who asks for a few keys reads a few blocks of them.

- `rows`: partitions and references with what is known of their shards, as rows in key order.
- `blocks`: such rows cut into blocks, and the index that says where each lies.
- `merging`: rows of a snapshot and of the increments after it, as the part of a state they are,
  and whether a later commit may concern that part.
"""
