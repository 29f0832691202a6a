"""Rows as files: the one place that writes Parquet, Arrow, CSV and JSON lines for readers.

- `formats`: the formats by name, and the writer of each.
- `writers`: the writers; each takes batches as they come, in bounded memory.
- `cells`: the values of any Arrow column in the types that JSON has.
- `json_lines`: objects as lines of JSON, safe to print.
- `files`: local files that are being written.
"""
