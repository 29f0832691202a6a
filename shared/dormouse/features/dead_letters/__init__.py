"""Messages in the dead-letter queues: shown, redriven, deleted."""
