"""Queues and their dead letters on SQS."""
