"""Rows and counts of one version of a table, by key ranges and conditions."""
