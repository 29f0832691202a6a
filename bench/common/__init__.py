"""What the benchmarks share: the runner, figures, goals, and pages that show them."""
