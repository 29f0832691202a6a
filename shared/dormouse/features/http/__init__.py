"""An instance over HTTP: tables, their parts and jobs, queries, files and requests.

- `routes`: the table of routes; `serve_http` answers one request by it, `openapi` describes it.
- `calls`: what a route's function takes, read from a request; `problems`: errors as answers.
- `tables`, `upkeep`: what there is. `changes`: requests, as on the queue of administrators.
- `queries`, `pages`, `forms`: rows, in pages, in the form that the client accepts.
- `uploads`: files and rows on their way in.
"""
