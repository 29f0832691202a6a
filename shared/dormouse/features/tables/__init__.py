"""Tables created, changed, renamed, reset and deleted.

- `changing`: the requests that change a table, one module each.
- `reset`: how a reset is carried out, and finished after a crash.
- `leftovers`: find and delete what deleted tables left behind.
- `tombstone_policy`: which tombstones an audit checks.
- `versions`: a table and its state at one version.
"""
