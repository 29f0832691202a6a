"""What all AWS adapters share: clients, errors, the clock, logs and metrics."""
