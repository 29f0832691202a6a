"""Purges: rows removed for good, and the proof that no object holds them.

- `request`: check a `purge_rows` request and start the purge.
- `purge`: a purge, what is known of its shards, the jobs that rewrite them, and the stored forms.
- `stored`: save, load and delete what is stored of a running purge.
- `purge_rows`: the stage that runs one step of a purge.
- `row_matcher`: find the rows to remove, in shards and in batches.
- `remaining_objects`: the objects that may hold such rows until garbage collection deletes them.
- `prove_purge`: read every object, and report those that hold such rows.
"""
