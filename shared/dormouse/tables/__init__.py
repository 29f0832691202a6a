"""What a table is: schema, properties and row rules, how each may change, and its tombstone.

- `table`: `Table`, the registry's record of a table; names; changes of properties
- `properties`: every property with its type, bounds, default, unit and meaning
- `row_rules`: filters and aggregations
- `evolution`: changes of the schema of a table with rows, and a new schema for a reset table
- `declaring`: compare the tables declared in a file with those there are
- `csv_dialect`: separator, quote, header and null of a table's CSV files
- `spark_options`: what a request asks of Spark for one job
- `tombstones`: the proof that a table was deleted
"""
