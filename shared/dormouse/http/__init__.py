"""HTTP without a framework: requests and responses as values, and a server for this machine.

- `messages`: what was asked, and what is answered; AWS's events are turned into these, too.
- `accept`: which of several forms of an answer a client prefers.
- `bodies`: what is read of a request while it arrives.
- `loopback`: answers requests of programs on this machine, at a port of its own.
- `websocket`: WebSockets of that server.
"""
