"""Messages in the dead-letter queues: shown, redriven, deleted.

- `dead_letters`: list, redrive and discard the dead letters of a queue.
- `request`: the `redrive` request.
"""
