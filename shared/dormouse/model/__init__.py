"""The nouns and rules of a table: frozen values, no I/O, no clock, no logging."""
