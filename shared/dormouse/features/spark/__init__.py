"""Jobs that Spark runs: requested, started, tracked to their end."""
