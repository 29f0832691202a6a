"""An instance in a folder: the same stages and stores over one SQLite file and plain files.

    mice/
      dormouse.sqlite     registry, job records, log pages, queues: all that changes
      tables/<table id>/  shards, and the deltas and snapshots of the state: put once, never changed
      inbox/<table>/      files to ingest
      exports/            what was exported

No absolute path is stored, so a folder can be moved. Any number of processes may use it at once.
Its modules, lowest first:

- ``failures``, ``layout``: errors of SQLite and the file system as ours; what lies where
- ``processes``: which processes use the folder, and with which release
- ``database``: connections and transactions; ``records``: sealed values by kind, owner and key
- ``log_pages``, ``state_store``, ``tables``, ``tracker``, ``queues``, ``dead_letters``, ``inbox``:
  an adapter for each port
"""
