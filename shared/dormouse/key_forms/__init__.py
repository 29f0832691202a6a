"""Every form of a key, one module a form, behind the `KeyCodec` of a schema.

A key is a tuple of numbers, strings and bytes here (`keys.ranges.Key`). The state and all that is
stored hold its bytes (`encode_key`).

- `codec`: `KeyCodec`, which converts whole keys and ranges, and checks them against the schema
- `python`: values that Python programs pass, such as a datetime
- `json`: parts in messages: numbers as numbers, everything else as text
- `text`: one part as people write it, such as an ISO 8601 time
- `assignments`: keys on the command line: ``name=value,name=value``, ``from..to``
- `arrow`: cells of Arrow columns, and values in Parquet statistics
"""
