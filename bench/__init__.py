"""Benchmarks: each measurement is a process of its own; figures are compared within one run."""
