"""The state of a table, and the transactions that change it. No I/O."""
