"""Documents that follow from the code: properties, roles, the schemas of messages. `make docs`."""

from __future__ import annotations

import json
import re
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args

import msgspec

from dormouse.features.query_runs import ResultMessage
from dormouse.messages.requests import AdminRequest, Reply
from dormouse.messages.stages import AnswerQuery, CancelQuery
from dormouse.tables.properties import KNOWN, KnownProperty
from dormouse_cli.generated import granted

_PROPERTIES = """# Properties

What can be set for a table. Its own value (`dormouse table add … --property NAME=VALUE`,
`dormouse table set TABLE NAME=VALUE`) comes first, then the instance's
(`dormouse instance set NAME=VALUE`), then the default. Made from
`shared/dormouse/tables/properties.py` by `make docs`.

| property | default | meaning |
|---|---|---|
"""
_MESSAGES = """# Messages for the admin queue

Each request is one JSON message on the queue `dormouse-<instance>-admin`. `make docs` generates a
JSON schema of each from `shared/dormouse/messages/requests.py`.

- The sender chooses the `request_id`: a request is done once, however often it is sent.
- With `"reply": true` the outcome is sent to the queue `dormouse-<instance>-replies`, as a `reply`:
  [when, and what it counts](../operations.md#replies).
- A refused request is recorded with its reason: `dormouse jobs NAME` shows it under its table,
  `dormouse jobs` if it is about no table.
- A message with unknown fields, versions (`v`) or values is no request. If its `request_id` can be
  read and it has `"reply": true`, it is refused in the same way. Otherwise it becomes a dead letter
  with the reason: `dormouse dlq show admin`.

| request | what it does |
|---|---|
"""
_QUERIES = """
# Messages for the queue of queries

Each is one JSON message on the queue `dormouse-<instance>-queries`, whose sender is who asks:
[queries over messages](../queries.md#queries-over-messages). A `query_result` is what is sent to a
queue that a query names. The schemas follow from `shared/dormouse/messages/stages.py` and
`shared/dormouse/features/query_runs.py`.

| message | what it does |
|---|---|
"""


def documents() -> dict[str, str]:
    """Return the text of each document by its path below docs/."""
    texts = {"properties.md": _PROPERTIES + "".join(map(_row, KNOWN.values()))}
    index = ""
    requests: list[type[msgspec.Struct]] = [*get_args(AdminRequest), Reply]
    queries: list[type[msgspec.Struct]] = [AnswerQuery, CancelQuery, ResultMessage]
    for head, kinds in ((_MESSAGES, requests), (_QUERIES, queries)):
        index += head
        for kind in sorted(kinds, key=_name):
            texts[f"messages/{_name(kind)}.json"] = json.dumps(_schema(kind), indent=2) + "\n"
            index += f"| [{_name(kind)}]({_name(kind)}.json) | {_first_sentence(kind)} |\n"
    texts["messages/README.md"] = index
    return texts


def _row(known: KnownProperty) -> str:
    default = f"`{known.default}`" if known.default != "" else "none"
    others = [f"`{choice}`" for choice in known.choices if choice != known.default]
    bound = f"at least {known.least}" if known.least else f"or {', '.join(others)}"
    parts = [f"{default} {known.unit}".rstrip(), *([bound] if known.least or others else [])]
    return f"| `{known.name}` | {', '.join(parts)} | {known.description} |\n"


def _name(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _schema(kind: type[msgspec.Struct]) -> dict[str, object]:
    schema = _portable(msgspec.json.schema(kind, schema_hook=_any_value))
    parts = schema["$defs"]
    for part in parts.values():
        part["description"] = cleandoc(part.get("description", ""))
    body = parts.pop(kind.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **body,
        "title": _name(kind),
        "description": body["description"],
        **({"$defs": parts} if parts else {}),
    }


def _portable(part: Any) -> Any:
    """Return a part of a schema with patterns as JSON schemas have them, not Python."""
    if isinstance(part, list):
        return [_portable(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _portable(each) for name, each in part.items()}
    if isinstance(found.get("pattern"), str):
        found["pattern"] = re.sub(r"\\Z$", "$", re.sub(r"^\\A", "^", found["pattern"]))
    return found


def _any_value(kind: type) -> dict[str, object]:
    """Return the schema of parts that may be any JSON: what they must be, the stage says."""
    if kind is object:
        return {"description": "any JSON; the request says what it means"}
    raise NotImplementedError(kind)


def _first_sentence(kind: type[msgspec.Struct]) -> str:
    text = " ".join((kind.__doc__ or "").split())
    return text.partition(". ")[0].rstrip(".").replace("|", "\\|") + "."


def main() -> None:
    """Write the documents below the folder named first."""
    folder = Path(sys.argv[1])
    roles = {"roles.md": granted.made_from(folder.parent / "template.yaml")}
    for path, text in {**documents(), **roles}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    main()
