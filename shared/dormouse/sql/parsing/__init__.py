"""Conditions in SQL, parsed to checked trees."""
