"""Measurements of the HTTP API: look-ups, many clients, large results, cold starts, money."""
