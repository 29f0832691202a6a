"""What every Lambda function does around a stage.

- `handling`: parses the events, calls the stage, sends what it returns, reports failures.
- `deliveries`: the retries of failed messages, and their move to the dead-letter queue.
- `requests`: administrators' requests, and the replies to them.
- `s3_events`, `spark_events`: the events of S3 and of EMR Serverless.
"""
