"""The row engine: compaction, ingest, look-ups and memory beside a floor and peers."""
