"""The shards of a partition merged into fewer, in one function, in steps, or by Spark."""
