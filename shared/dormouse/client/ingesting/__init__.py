"""Rows of a program and files on their way into a table: inferred, checked, dropped, awaited."""
