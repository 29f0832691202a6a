"""Rows of one version written to Parquet files, with a manifest."""
