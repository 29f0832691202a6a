"""What a table is: schema, properties and row rules, how each may change, and its tombstone.

- `table`: `Table`, the registry's record of a table, how its schema may change, its tombstone
- `properties`: every property with its type, bounds, default, unit and meaning
- `row_rules`: filters and aggregations
- `declaring`: compare the tables declared in a file with those there are
"""
