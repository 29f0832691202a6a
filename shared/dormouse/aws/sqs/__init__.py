"""Queues on SQS.

- `queues`: sending messages and counting them.
- `dead_letters`: receiving, redriving and deleting dead letters.
- `batching`: how many messages one request can have.
- `queue_ages`: the age of the oldest message of each queue.
"""
