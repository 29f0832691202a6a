"""What runs in the process of a statement: it plans and computes, and reads nothing by itself.

- `computing`: the process; `session`: DataFusion as it uses it, bounded
- `datasets`: tables without rows, for DataFusion to plan over
- `planning`: what each scan of the plan needs; `conditions` translates its filters
- `cuts`: confirms how a statement is cut into parts
"""
