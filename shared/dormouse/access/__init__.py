"""Who may do what with which tables, where rules of the instance say so.

- `principals`: the canonical names of callers, and patterns of these
- `rules`: the rules of an instance, and what they permit a caller for one table
- `renames`: names that rules guard
- `visible`: a table as a caller may see it, without the columns that are hidden from the caller
- `doors`: the one way by which services that answer for any caller come to tables
- `results`: whether a caller may have what was read before
"""
