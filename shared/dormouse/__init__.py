"""Dormouse: a serverless, log-structured table store on S3.

A map of the package, lowest layer first; a layer imports only those above it in this list:

- ``errors``: what can go wrong, by what the caller should do about it
- ``cache``: what a process keeps of stored objects
- ``library``: which version of itself this is
- ``model``: schema, keys, partitions, shards, transactions, the fold; pure
- ``statestore``: how transactions are ordered, stored and read back
- ``policy``: what to compact, split and collect; pure
- ``messages``, ``ports``: what the stages say to each other and ask of the world
- ``storage``: data roots in a folder and in memory
- ``shards``: rows in Parquet: write, read a range, merge
- ``stages``: one function per stage of the flow: message in, messages out
- ``settings``: what a process is told from outside
- ``aws``: the adapters over S3, SQS and DynamoDB, and the glue of the Lambda handlers
- ``client``: the Python API
"""

__version__ = "0.1.0"
