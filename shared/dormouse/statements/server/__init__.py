"""The server that forks a process for each statement, from both sides.

`processes` is the caller's side; `start` begins the server, and `fork_server` is its loop.
"""
