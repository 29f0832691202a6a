"""The SQLite file of an instance: connections, transactions, sealed values, failures."""
