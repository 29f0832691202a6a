"""The types of columns, the schema of a table, and which keys fit it.

- `types`: column types and their JSON form
- `type_text`: types as people write them, such as ``list<string>``
- `schema`: fields, row keys, sort keys, field ids, former names
- `key_types`: check a key against the types of a table's row keys, and its size
"""
