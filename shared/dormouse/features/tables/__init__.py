"""Tables created, changed, renamed, reset and deleted.

- `create_table`, `rename_table`, `delete_table`: the requests of those names.
- `alter_schema`, `set_properties`, `set_online`: change a table's schema and properties.
- `reinitialise_table`: the request that removes all rows of a table.
- `reset`: how a reset is carried out, and finished after a crash.
- `leftovers`: find and delete what deleted tables left behind.
- `tombstone_policy`: which tombstones an audit checks.
- `versions`: a table and its state at one version.
"""
