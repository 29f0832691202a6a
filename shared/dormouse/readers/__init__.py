"""Reads of shards: whole, by key range or by row, each byte proven by its checksum."""
