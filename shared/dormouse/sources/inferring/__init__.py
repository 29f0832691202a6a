"""Types of columns, inferred from the values of a file."""
