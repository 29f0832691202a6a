"""An instance over HTTP: tables, their parts and jobs, queries, files and requests.

- `routes`: the table of routes; `serve_http` answers one request by it, `openapi` describes it.
- `resources`: the functions of the routes.
- `calls`: what a route's function takes, read from a request; `problems`: errors as answers.
- `door`: who may call a server on this machine.
"""
