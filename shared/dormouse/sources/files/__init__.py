"""Formats of ingested files: Parquet, Arrow, CSV and JSON lines, also compressed."""
