"""What a table is: its schema, properties and row rules, how they may change, and its tombstone."""
