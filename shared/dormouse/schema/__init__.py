"""The types of columns, a table's schema, and which keys fit it."""
