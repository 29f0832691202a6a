"""Statements in SQL over the tables of an instance, which DuckDB plans and computes.

1. DuckDB parses the text, and its own tree is checked: one query, which names tables of the
   instance and harmless functions alone (`statement`). What it says of parts of documents is
   replaced in the tree, or refused (`documents`).
2. What the state of a table knows is answered from there (`running`).
3. Each reference becomes a source that DuckDB calls back (`source`), and that reads the row groups
   which keys, statistics, filters and term indexes allow (`tables`), by what DuckDB offers and by
   what WHERE says of texts and documents (`where`); DuckDB tests the rows.
4. A scan that reads most of a large table from files of this machine gets the verified files in
   place of the source, and DuckDB reads these in parallel.
5. The result is streamed while it is computed (`running`), within limits of memory, time and bytes.

What the engine can reach is closed before it sees a text (`engine`).
"""
