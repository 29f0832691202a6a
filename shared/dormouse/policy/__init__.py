"""Decisions as pure functions: state and properties in, plans out."""
