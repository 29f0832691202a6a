"""The SQLite file of an instance: connections, transactions, items, failures."""
