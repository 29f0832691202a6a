"""Administrators' requests: carried out once, followed to their end, answered."""
