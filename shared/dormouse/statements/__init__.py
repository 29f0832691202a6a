"""Statements in SQL over the tables of an instance, run by DataFusion in a process of their own.

The caller's process reads; the child's plans and computes, and reaches neither storage nor network:

1. The child parses the statement (`sql.statements`), and asks for the schemas of its tables.
2. DataFusion plans it over datasets that have these schemas and no rows yet (`child.datasets`).
3. `child.planning` finds what each scan of the plan needs: columns, a condition that
   `child.conditions` translates, the first rows only, or just their number.
4. While the plan runs, the child opens a pipe for each scan and hands it over; the caller's process
   answers with the selected rows, as any query selects them (`scans`).
5. Results come back as an Arrow stream (`running`). The caller's process kills the child if it
   takes too long or too much memory; and the child dies with it.

A statement that one small scan answers needs none of this: `answering` asks `direct` first, which
answers it in the caller's process. A large one over messages is cut: the child confirms its parts
(`child.cuts`), and the final part reads what the others wrote (`partials`).

- `protocol`: the messages between both, and how they are framed
- `server`: the server that forks a child for each statement, from both sides
- `child`: what runs in the child's process
"""
