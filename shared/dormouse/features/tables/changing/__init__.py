"""Requests that change one table: create, alter, rename, reset, delete, set."""
