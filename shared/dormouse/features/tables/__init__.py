"""Tables created, changed, renamed, reset and deleted."""
