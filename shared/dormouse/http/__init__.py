"""HTTP without a framework: requests and responses as values, and a server for this machine.

- `messages`: what was asked, in which form the client wants the answer, and what is answered
- `loopback`: answers requests of programs on this machine, at a port of its own
"""
