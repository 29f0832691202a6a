"""Every route of the API: its method, its path, who may use it, and the function that answers it.

A path has parts and names in braces; nothing in it is optional. No two routes fit one path.
"""

from __future__ import annotations

from dormouse.features.http.calls import Route
from dormouse.features.http.resources import asked, changes, queries, tables, upkeep, uploads

ROUTES = (
    Route("GET", "/tables", "read", tables.list_tables),
    Route("POST", "/tables", "administer", changes.create_table, 202),
    Route("GET", "/tables/{table}", "read", tables.show_table),
    Route("PATCH", "/tables/{table}", "administer", changes.change_table, 202),
    Route("DELETE", "/tables/{table}", "administer", changes.delete_table, 202),
    Route("GET", "/tables/{table}/schema", "read", tables.show_schema),
    Route("GET", "/tables/{table}/properties", "read", tables.show_properties),
    Route("GET", "/tables/{table}/status", "read", tables.show_status),
    Route("GET", "/tables/{table}/metrics", "read", tables.show_metrics),
    Route("GET", "/tables/{table}/partitions", "read", tables.list_partitions),
    Route("GET", "/tables/{table}/shards", "read", tables.list_shards),
    Route("GET", "/tables/{table}/versions", "read", tables.list_versions),
    Route("GET", "/tables/{table}/jobs", "read", upkeep.list_jobs),
    Route("GET", "/tables/{table}/refused-files", "read", upkeep.list_refused_files),
    Route(
        "POST",
        "/tables/{table}/query",
        "read",
        queries.query_table,
        later=asked.QueryAccepted,
        apart=True,
    ),
    Route("POST", "/tables/{table}/compact", "administer", changes.compact_table, 202),
    Route("POST", "/tables/{table}/split", "administer", changes.split_partitions, 202),
    Route("POST", "/tables/{table}/files", "write", uploads.begin_upload),
    Route("GET", "/tables/{table}/files/{file}", "read", uploads.show_file),
    Route("PUT", "/tables/{table}/files/{file}", "write", uploads.put_file, 202, ("*/*",)),
    Route("POST", "/tables/{table}/rows", "write", uploads.add_rows, 202, uploads.ROWS_TYPES),
    Route("POST", "/sql", "read", queries.run_statement, later=asked.QueryAccepted, apart=True),
    Route("GET", "/queries", "read", asked.list_queries),
    Route("GET", "/queries/{query_id}", "read", asked.show_query),
    Route("DELETE", "/queries/{query_id}", "read", asked.cancel_query, 202),
    Route("GET", "/queries/{query_id}/files/{file}", "read", asked.read_result, files=True),
    Route("GET", "/jobs", "read", upkeep.list_other_jobs),
    Route("GET", "/websocket", "read", upkeep.show_websocket),
    Route("GET", "/queues", "read", upkeep.list_queues),
    Route("GET", "/queues/{queue}/dead-letters", "administer", upkeep.list_dead_letters),
    Route("POST", "/queues/{queue}/redrive", "administer", changes.redrive_dead_letters, 202),
    Route("GET", "/requests/{request}", "read", upkeep.show_request),
)
DOCUMENT = "/openapi.json"
"""The path of the description of these routes."""
