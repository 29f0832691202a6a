"""Rows in Parquet files: write them sorted, read a key range, merge many into one."""
