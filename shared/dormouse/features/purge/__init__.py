"""Rows removed for good, and the proof that no object holds them."""
