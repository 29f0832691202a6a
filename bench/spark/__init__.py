"""Bulk imports and heavy compactions on Spark beside plain Spark."""
