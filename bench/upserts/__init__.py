"""Rows that change: upserts and deletions beside other table formats."""
