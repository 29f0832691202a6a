"""The log of a table: the order of its commits.

- `pages`: the port for log pages and their head, with manifest and low-water mark.
- `log`: appends each id exactly once, with retries; reads the ids after a version.
- `reader`: reads the deltas, segments and snapshots that the log names.
- `tail`: the newest state seen by this process, and the deltas since.
- `compaction`: writes segments and snapshots.
- `collection`: deletes what no kept version needs.
- `history`: earlier versions.
"""
