"""Object storage and the ingest bucket on S3."""
