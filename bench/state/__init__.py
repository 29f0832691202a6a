"""The state store: what commits cost, how writers share a table, what reads take."""
