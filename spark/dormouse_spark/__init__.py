"""Spark jobs for work that is too large for a function, and tables as DataFrames.

Rows pass through Spark as opaque blocks of Arrow data. They are read, sorted, merged and written by
the same code as in the functions.

- `entry`: the command line of the jobs; `submit`: spark-submit on this machine
- `bulk_import`, `importing`: ingest many files; the driver, and its tasks
- `compact`: merge the inputs of a compaction in parallel
- `export_rows`: write the files of an export in parallel
- `statement`: compute a statement in SQL, and write its rows in parallel
- `datasource`: the format ``dormouse`` for DataFrames
- `pushdown`: filters of Spark as conditions
- `types`: column types as Spark types
- `blocks`: the blocks of rows, and their routing to ranges of keys
- `access`: how tasks open the instance on executors
- `running`: run tasks so that their errors keep their meaning
"""
