"""Adapters over AWS services; boto3 is imported here and nowhere else.

- `wiring`: builds the services of a process from its settings
- `clients`, `requests`: clients, and the translation of failures
- `storage`, `uploads`: objects in S3; `dynamodb`, `items`: the store of small items
- `state_store`, `blobs`: where the log of a table's state is kept
- `queues`: SQS; `emr`: Spark runs on EMR Serverless; `glue`: its Data Catalog
- `handling`: from Lambda events to stages and back
"""
