"""The WebSocket: queries in pages while they are answered, and what changes, on one connection.

- `serve_websocket`: what happens on a connection, and what each frame of a client does
- `tokens`: where the next page of a query begins
- `result_pages`: the pages of a query, from the files of its sub-queries that are done
- `watching`: what has changed since a client asked last
- `upgrades`: the WebSockets of a server of this machine
"""
