"""Queries over messages: asked by a message, answered by sub-queries, read back from files.

- `query`: a query, how it ended, and the stored forms of both.
- `stored`: save and load what is stored of a query, below its prefix in the results bucket.
- `answer_query`: the stage: begins queries, answers sub-queries, cancels.
- `planning`: check a question, fix the version that it reads, and cut it into sub-queries.
- `cutting`: cut a statement in SQL into sub-queries, if that leads to the same result.
- `pinning`: open the version that a query reads, and hold it.
- `statements`: the sub-queries of a statement: the whole, a part, or the final part.
- `sub_query`: read the rows of one sub-query and write them.
- `ending`: how a query ends: its manifest, its record, its pins.
- `limits`: what a query may take.
- `sinks`: the port behind which results are written, and the files behind it.
- `overdue`: queries that a sweep continues, or cleans up after.
"""
