"""Sorted rows written as shards: divided, encoded, sampled, uploaded, marked as complete."""
