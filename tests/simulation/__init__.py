"""The real stages and state store in a simulated world that breaks in every way it can."""
