"""Keys as tuples, their order, half-open ranges of them, and histograms of where they lie."""
