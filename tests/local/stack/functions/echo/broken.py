"""A function whose module cannot be imported."""

raise RuntimeError("broken on import")
