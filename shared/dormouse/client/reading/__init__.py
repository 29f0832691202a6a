"""Rows of a table as a client asks for them: queries, statements, exports, versions, Iceberg."""
