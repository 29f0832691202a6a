"""Files of rows: those that come in, and those that results are written to.

- `formats`, `text_files`, `parquet_files`: read a file as rows of a schema, or refuse it
- `inferred`: the schema of a file; `casting`, `cells`: values as types of a column
- `frames`: rows of other libraries; `loader`: read ahead while files arrive
- `rejects`: rows that are left out; `results`: rows as files
"""
