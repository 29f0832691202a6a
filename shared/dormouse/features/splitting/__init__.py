"""A partition with too many rows split in two."""
