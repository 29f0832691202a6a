"""Repair a table and publish its metrics, on schedules.

- `sweep`: send unfinished work again; as an audit, also ingest missed files and delete orphans.
- `measure`: publish the metrics of a table.
- `table_metrics`: compute them from its state.
"""
