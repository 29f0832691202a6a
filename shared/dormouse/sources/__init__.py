"""Files that people drop, as rows of a table: CSV, JSON and Parquet, checked strictly."""
