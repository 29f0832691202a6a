"""Measures what publishing for readers of Iceberg costs, and what they need to plan a look-up."""
