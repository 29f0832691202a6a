"""The real stack, broken on purpose, and under load; run by `make chaos` and `make load`.

The parts, lowest first: ``tally`` (counts) → ``faults`` (what goes wrong with which request, by a
seed), ``answers`` (how AWS says so), ``proxy`` (does it to requests on their way) → ``tables`` (the
tables and files of a run), ``ledger`` (what their rows must be at any moment), ``rehearsal`` (the
stack with short times, behind the proxy) → ``killing``, ``dropping``, ``reading``, ``removing``
(what goes on meanwhile) → ``completion`` (the time after the faults) → ``report`` → ``__main__``.
``load`` and ``watching`` are the other tool: many files and many queries, and what they take.
"""
