"""The shard, an immutable Parquet file of sorted rows: its footer, checksums, index and writer."""
