"""Read ingested files as rows of a table, strictly: CSV, JSON lines and Parquet.

- `loader`: load the rows of many files, and return them sorted
- `formats`: choose the reader of a file, by its name and content
- `csv_files`, `csv_structure`: CSV files, and their validation by RFC 4180
- `json_files`, `json_cells`: JSON lines, and JSON values as columns
- `parquet_files`, `parquet_batches`: Parquet files, and how many rows are read at once
- `text_cells`: numbers, times and other values that are written as text
- `casting`: columns of a file cast to columns of the table, and errors without values
"""
