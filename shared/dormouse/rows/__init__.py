"""Rows as they are sorted, merged, filtered and aggregated, by DataFusion.

- `sorting`, `merging`: sort what comes in, merge sorted shards window by window
- `predicates`, `aggregation`: conditions and row rules as plans
- `wide_rows`: what a window of many or large columns takes in memory
"""
