"""Files of published metadata: Avro records, manifests, and which rows of shards are dead."""
