"""Judge a transaction against the state before it, and apply it. Pure.

- `fold`: `apply`, the only code that makes one state from another
- `rules`: every precondition of every transaction, as data
- `validation`: what is wrong with an entry in any state
- `invariants`: what is true of every state, as checks
"""
