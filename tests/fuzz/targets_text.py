"""Text and JSON that people and services write: messages, schemas, conditions, keys, files of the
command, and the notes that lie beside tables.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
from hypothesis import strategies as st

from dormouse.access import dump_rules, load_rules, permission
from dormouse.arrow.types import arrow_schema
from dormouse.aws.handling import changed_run, created_objects
from dormouse.client.operations import parse_declarations, plan_declared
from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.key_codec import KeyCodec, parse_part
from dormouse.messages import requests, stages
from dormouse.schema.schema import Schema
from dormouse.schema.types import parse_type_text
from dormouse.sql.conditions import parse_condition
from dormouse.statements.statement import parse_statement
from dormouse.tables.properties import KNOWN, parse_settings, properties_of
from dormouse.tables.row_rules import row_rules
from dormouse_cli import values
from dormouse_cli.commands.table import read_declarations
from dormouse_cli.values import parse_split_points
from tests.fuzz import samples
from tests.fuzz.mutations import mangled, mangled_json, mangled_text
from tests.fuzz.targets import Target, refusing
from tests.support.every_type import EVERY_TYPE
from tests.support.world import World


def _message(body: bytes) -> None:
    for kind in samples.MESSAGES:
        with refusing(InvalidRequestError):
            found = stages.decode(body, type(kind))
            assert stages.decode(stages.encode(found), type(kind)) == found
    with refusing(InvalidRequestError):
        stages.STAGE_OF["spark-jobs"].decode(body)


def _request(body: bytes) -> None:
    with refusing(InvalidRequestError):
        found = requests.decode_admin(body)
        assert requests.decode_admin(stages.encode(found)) == found


def _notification(body: bytes) -> None:
    text = body.decode(errors="surrogateescape")
    with refusing(InvalidRequestError):
        for source in created_objects(text, samples.BUCKET):
            assert source.id
    with refusing(InvalidRequestError):
        changed_run(text)


def _schema(body: bytes) -> None:
    with refusing(InvalidRequestError):
        schema = Schema.loads(body)
        assert Schema.loads(schema.dumps()) == schema
        arrow_schema(schema)


def _type(text: str) -> None:
    with refusing(InvalidRequestError):
        parse_type_text(text)


def _condition(text: str) -> None:
    with refusing(InvalidRequestError):
        found = parse_condition(text, EVERY_TYPE)
        assert parse_condition(found.sql, EVERY_TYPE).sql == found.sql


PARSER = duckdb.connect()


def _statement(text: str) -> None:
    """It is refused, or it names tables at places that it has."""
    with refusing(InvalidRequestError):
        found = parse_statement(text, PARSER)
        lines = text.count("\n") + 1
        assert all(each.table and 1 <= each.line <= lines for each in found.references)


def _access(body: bytes) -> None:
    with suppress(ValueError), refusing(InvalidRequestError):  # the registry says it is damaged
        found = load_rules(body.decode(errors="surrogateescape"))
        assert load_rules(dump_rules(found)) == found
        for verbs in (permission(found, who, "letters").verbs for who in ("local", "nobody")):
            assert found is None or len(verbs) <= sum(len(rule.verbs) for rule in found)


def _rules(given: tuple[str, str]) -> None:
    with refusing(InvalidRequestError):
        settings = parse_settings({"filters": given[0], "aggregations": given[1]})
        row_rules(samples.COUNTS, properties_of(settings))


def _settings(body: bytes) -> None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return
    with refusing(InvalidRequestError):
        properties_of(parse_settings(parsed))


def _key(text: str) -> None:
    for kind in samples.KEY_KINDS:
        with refusing(InvalidRequestError):
            parse_part(text, kind)
    codec = KeyCodec(EVERY_TYPE)
    for parse in (codec.from_assignments, codec.range_from_assignments):
        with refusing(InvalidRequestError):
            parse(text)
    for parse_all in (values.parse_properties, values.parse_new_fields):
        with refusing(InvalidRequestError):
            parse_all([text])


def _splits(body: bytes) -> None:
    for schema in (EVERY_TYPE, samples.COUNTS):
        with refusing(InvalidRequestError):
            parse_split_points(body, schema)


@cache
def _world() -> World:
    world = World(Path(tempfile.mkdtemp(prefix="dormouse-fuzz-")))
    world.create("there")
    return world


def _declaration(body: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(body)
        file.flush()
        with refusing(InvalidRequestError, NotFoundError):
            services = _world().services
            declared = parse_declarations(read_declarations(Path(file.name)), services)
            plan_declared(services, declared)


def _note(name: str, body: bytes) -> None:
    _, decode, path = samples.NOTES[name]
    with refusing(CorruptDataError):
        try:
            decode(body)
        except CorruptDataError as error:
            assert path in str(error), error
            raise


_NOTES: dict[str, Target] = {
    f"note of {name}": Target(
        mangled_json([json.loads(good)]), partial(_note, name), guided=True, quick=60
    )
    for name, (good, _, _) in samples.NOTES.items()
}
_conditions = mangled_text(samples.CONDITIONS)
_kinds: Any = [json.loads(stages.encode(message)) for message in samples.MESSAGES]
_asked: Any = [json.loads(stages.encode(request)) for request in samples.REQUESTS]

TARGETS: dict[str, Target] = {
    "messages": Target(mangled_json(_kinds), _message, guided=True),
    "requests": Target(mangled_json(_asked), _request, guided=True),
    "notifications": Target(mangled_json(samples.NOTIFICATIONS), _notification, guided=True),
    "schemas": Target(mangled_json([EVERY_TYPE.to_json()]), _schema, guided=True, quick=200),
    "types": Target(mangled_text(samples.TYPES), _type, guided=True),
    "conditions": Target(_conditions, _condition, guided=True, quick=200),
    "statements": Target(mangled_text(samples.STATEMENTS), _statement, guided=True, quick=200),
    "access rules": Target(
        mangled_json([json.loads(dump_rules(samples.RULES))]), _access, guided=True
    ),
    "row rules": Target(
        st.tuples(mangled_text(samples.FILTERS), mangled_text(samples.AGGREGATIONS)), _rules
    ),
    "properties": Target(
        mangled_json([{name: known.default for name, known in KNOWN.items()}]), _settings
    ),
    "keys": Target(mangled_text(samples.KEYS), _key, guided=True),
    "split files": Target(mangled(samples.SPLITS), _splits, guided=True),
    "declarations": Target(
        mangled(samples.DECLARATIONS) | mangled_json([samples.DECLARED]), _declaration, quick=40
    ),
    **_NOTES,
}
