"""Queries over messages: asked by a message, answered by sub-queries, read back from files.

- `query`: a query, how it ended, and the stored forms of both.
- `stored`: save and load what is stored of a query, below its prefix in the results bucket.
- `answer_query`: the stage: begins queries, answers sub-queries, cancels.
- `beginning`: check a question, fix the version that it reads, and cut it into sub-queries.
- `answering`: read the rows of one sub-query and write them.
- `pinning`: open the version that a query reads, and hold it.
- `following`: send progress to the connection on which a query was asked.
- `ending`: how a query ends: its manifest, its record, its pins; `delivery` sends its result.
- `limits`: what a query may take.
- `overdue`: queries that a sweep continues, or cleans up after.
"""
