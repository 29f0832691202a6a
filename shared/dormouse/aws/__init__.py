"""Adapters over AWS services; boto3 is imported here and nowhere else.

- `wiring`: builds the services of a process from its settings.
- `base`: clients, the translation of failures, logs and metrics.
- `s3`: objects, the ingest bucket, and the S3 state store.
- `dynamodb`: the store of small items, and the DynamoDB state store.
- `sqs`: queues and dead-letter queues.
- `emr`: Spark runs on EMR Serverless.
- `functions`: from Lambda events to stages and back.
"""
