"""What all jobs share: their records, attempts, crashes and retries.

- `tracking`: record what happens to a job
- `records`: how long records are kept
- `attempts`: attempts at one part of a job, such as a step or a task
- `crashes`: what happens to a job whose attempts crashed, and what is stored about it
- `retry_policy`: when a job is retried, with growing intervals (backoff)
"""
