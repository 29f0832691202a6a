"""Iceberg metadata of a table's shards, for readers other than Dormouse.

Everything here is a pure function: from a state, and from what was published before, to the objects
to put. No row is copied. docs/decisions/iceberg.md says why it is done in this way.
"""
