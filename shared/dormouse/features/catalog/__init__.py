"""Serve published tables as an Iceberg REST catalog, to read only.

- `serve_catalog`: answer one request.
- `published`: the tables that the catalog has, and the metadata that each has now.
"""
