"""Documents that follow from the code: properties, roles, the schemas of messages. `make docs`."""

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
from tools.generated import granted

_PROPERTIES = """# Properties

A table's own value (`dormouse table add … --property NAME=VALUE`, `dormouse table set TABLE
NAME=VALUE`) comes first, then the instance's (`dormouse instance set NAME=VALUE`), then the
default. Units are the last word of a name. *Fixed* properties are set when a table is created,
never after. Properties that say what a shard contains hold for shards written from then on: an
ingest, a compaction. `make docs` makes this page from `shared/dormouse/tables/properties.py`.

| property | default | meaning |
|---|---|---|
"""
_MESSAGES = """# Messages for the admin queue

Each request is one JSON message on the queue `dormouse-<instance>-admin`. `make docs` generates a
JSON schema of each from `shared/dormouse/messages/requests.py`.

- The sender chooses the `request_id`: it is done once, and other content under it is refused,
  unless the first was.
- With `"reply": true` the outcome is sent as a [reply](#replies).
- A refused request is recorded with its reason: `dormouse jobs NAME` shows it under its table,
  `dormouse jobs` if it is about no table.
- A message with unknown fields, versions (`v`) or values is no request. If its `request_id` can be
  read and it has `"reply": true`, it is refused in the same way. Otherwise it becomes a dead letter
  with the reason: `dormouse dlq show admin`.

| request | what it does |
|---|---|
"""
_REPLIES = """
## Replies

The queue `dormouse-<instance>-replies` keeps replies for 4 days. Two with one `id` are the same.

| `outcome` | means |
|---|---|
| `accepted` | its jobs are fixed, nothing is done yet; `finished` or `failed` follows |
| `finished` | everything is done |
| `failed` | all has ended, and `jobs` names what was not done; or its message failed three times |
| `refused` | nothing was done, for the reason given |

| request | is finished when | counts, besides `jobs` |
|---|---|---|
| `compact_table` | every compaction is committed | `rows` written, `shards` merged |
| `ingest_files` | every file is ingested, none refused | `rows`, `files`, `known`, `refused` |
| `export_rows` | the manifest is there | `rows`, `files`, `size_bytes` |
| `purge_rows` | no object has its rows: [when](../purge.md#what-is-promised) | `removed` rows |
| `split_partitions` | every leaf is split | `partitions` |
| `collect_garbage` | every shard it found is deleted | `shards`, `size_bytes` |
| `redrive` (`messages`), all others | at once | |

A `failed` reply comes after 3 days at the latest (for a purge, plus its delays); an `unfinished`
job in it may still be done. A redriven request is answered again with another `id`. A request
without `"reply"` counts as `accepted` until a sweep looks, an hour later at the earliest.
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
    for head, kinds in ((_MESSAGES, requests), (_REPLIES + _QUERIES, queries)):
        index += head
        for kind in sorted(kinds, key=_name):
            texts[f"messages/{_name(kind)}.json"] = json.dumps(_schema(kind), indent=2) + "\n"
            index += f"| [{_name(kind)}]({_name(kind)}.json) | {_first_sentence(kind)} |\n"
    texts["messages/README.md"] = index
    return texts


def _row(item: KnownProperty) -> str:
    default = f"`{item.default}`" if item.default != "" else "none"
    others = [f"`{choice}`" for choice in item.choices if choice != item.default]
    bounds = [f"at least {item.least}"] if (item.least or 0) > 1 else []
    bounds += [f"or {', '.join(others)}"] if others else []
    fixed = ["*fixed*"] if item.is_fixed else []
    meaning = re.sub(r"\b([a-z-]+)\.md", r"[\1](\1.md)", item.description)
    return f"| `{item.name}` | {', '.join([default, *bounds, *fixed])} | {meaning} |\n"


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
    parts = {name: _portable(each) for name, each in part.items()}
    if isinstance(parts.get("pattern"), str):
        parts["pattern"] = re.sub(r"\\Z$", "$", re.sub(r"^\\A", "^", parts["pattern"]))
    return parts


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
