"""An instance in a folder: the same stages and stores over one SQLite file and plain files.

    mice/
      dormouse.sqlite     registry, job records, log pages, queues: all that changes
      tables/<table id>/  shards, and the deltas and snapshots of the state: put once, never changed
      inbox/<table>/      files to ingest
      exports/            what was exported

No absolute path is stored, so a folder can be moved. Any number of processes may use it at once.
Its parts, lowest first:

- ``layout``, ``processes``: what lies where; which processes use the folder, and which release
- ``sqlite``: connections, transactions, the store of items (`dormouse.items`); failures as ours
- ``publications``: records of publications, with a file that names the newest metadata
- ``queues``: messages and dead letters; ``inbox``: files to ingest
- ``worker``, ``spark``: the worker, its schedule, its thread, and runs of Spark
- ``wiring``: all of it, opened together
"""
