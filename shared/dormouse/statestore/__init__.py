"""The state of a table, kept as ordered transactions: who commits, who reads, in which order."""
