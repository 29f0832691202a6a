"""How a sub-query is answered.

- `sub_query`: read its rows and write them
- `statements`: the rows of a statement: the whole, a part, or the final part
- `sinks`: the port behind which results are written, and the files behind it
"""
