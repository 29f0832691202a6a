"""Keys: their order, their bytes, half-open ranges of them, and histograms of where they lie.

- `ranges`: keys, `KeyRange`, unions and intersections of ranges, the bytes of a key
- `histogram`: `KeyHistogram`, an equi-depth histogram of the row keys of sorted rows
"""
