"""On a schedule: what a lost message left undone is repaired, and metrics are published."""
