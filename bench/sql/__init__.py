"""SQL over tables, beside DuckDB, DataFusion and Polars on exported Parquet of the same rows."""
