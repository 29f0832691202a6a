"""Adapters over S3, SQS and DynamoDB, and the glue between Lambda events and stages."""
