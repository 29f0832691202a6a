"""The types of columns, the schema of a table, and which keys fit it.

- `types`: column types, their JSON form, and as people write them, such as ``list<string>``
- `schema`: fields, row keys, sort keys, field ids, former names; which keys fit
- `iceberg`: types as readers of Iceberg and Hive know them
"""
