"""Delete shards that nothing references any more, after a delay (garbage collection).

- `collect_garbage`: delete the shards of a message; `garbage` is the policy.
- `request`: the request ``collect_garbage``, for all shards whose delay is over.
"""
