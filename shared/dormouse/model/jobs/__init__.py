"""Jobs as values: what happens to them, their records, their metrics, and which are for Spark."""
