"""Deltas: the stored form of what one commit changes, and of many of them in one segment."""
