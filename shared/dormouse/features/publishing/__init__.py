"""Publish tables as Iceberg tables, for the engines of others.

- `publish_iceberg`: follow the state of a table, by way of a queue.
- `collect_iceberg`: delete what no metadata reaches any more.
- `lag`: how far what is published is behind.
- `look`: what is published of a table, for people.
- `request`: the request ``publish_iceberg``, to publish everything again.
"""
