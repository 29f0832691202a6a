"""Snapshots: the stored form of a whole state, which serves from memory as it was read."""
