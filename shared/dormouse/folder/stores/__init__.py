"""What an instance in a folder keeps: one adapter for each port of records, over SQLite."""
