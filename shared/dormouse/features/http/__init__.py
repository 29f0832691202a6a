"""An instance over HTTP: tables, their parts and jobs, queries, files and requests.

- `serve_http`: answers one request by the table of routes.
- `tables`, `queries`, `upkeep`: the functions of the routes; `forms`: in which forms rows are sent.
- `calls`: what a route's function takes, read from a request; `problems`: errors as answers.
- `computing`: the process that computes for a server.
"""
