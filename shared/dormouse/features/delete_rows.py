"""delete_rows: hide rows from all readers by one commit; compactions leave them out later.

A deletion is an entry in the log (`state.Deletion`). It hides the matching rows of the shards that
are there at its version: earlier versions still have them, and rows that come later are not
affected. A compaction that is assigned later writes none of these rows. When no shard is left that
may hold some, the deletion is forgotten.

Order of writes: the commit, then a note of the deletion, which only a rebuild of a lost state
reads. A crash between the two leaves the note to the redelivery, and to the next planning of the
table. An audit deletes the notes of forgotten deletions, which hide nothing that is there.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
from msgspec import structs

from dormouse.access import EVERYTHING, Permission
from dormouse.arrow.order import fit_range, ranges_to_read
from dormouse.encryption import subject_name
from dormouse.errors import InvalidRequestError
from dormouse.features.requests import Kind, RequestResult, check_only_rows, request_key
from dormouse.features.versions import read_version
from dormouse.key_codec import KeyCodec, part_from_json
from dormouse.keys import Key, KeyPart, KeyRange, union_ranges
from dormouse.messages.requests import Counts, DeleteRows, ForgetSubjects
from dormouse.messages.stages import OutboundMessage, SelectionMessage, TableChanged
from dormouse.ports import Services
from dormouse.query.selection import decode_selection
from dormouse.rows.deletions import any_of, named_fields
from dormouse.schema.schema import MAX_KEY_BYTES, SHARD, Schema
from dormouse.schema.types import DecimalType, from_decimal_count
from dormouse.sql.conditions import (
    MAX_CONDITION_CHARACTERS,
    MAX_LIST,
    SPACE,
    Column,
    Expression,
    Literal,
    truth,
)
from dormouse.sql.key_bounds import wanted_tags
from dormouse.state.rules import MAX_DELETIONS, Rejected, Rule, accepted, needed_deletions
from dormouse.state.state import Deletion, ForgetDeletions, HideRows, TableState
from dormouse.stored.paths import DELETIONS
from dormouse.tables.encryption import subject_of
from dormouse.tables.row_rules import asked_fields, check_groups, row_rules
from dormouse.tables.table import Table

MOST_RANGES = 64
"""More ranges of keys are stored as one around them, and longer ones than a key may be as one of
all keys: they only tell which shards to look at."""


def delete_rows(services: Services, table: Table, request: DeleteRows) -> list[OutboundMessage]:
    """Delete the rows of a request once, however often it is delivered.
    Raises InvalidRequestError: it selects no rows, or rows that this table cannot delete
    separately; or too many deletions are not applied yet.
    """
    table, state = read_version(services, table)
    now_ms = services.clock.now_ms()
    deletion = build_deletion(table, request_key(request), request.selection, now_ms)
    if deletion is None:
        return []
    hide_rows(services, table, state, [deletion])
    return [OutboundMessage("table-changes", TableChanged(table.id))]


def hide_rows(
    services: Services, table: Table, state: TableState, deletions: Sequence[Deletion]
) -> tuple[Deletion, ...]:
    """Commit deletions to a table, unless they are there, and note them. Return them as they are
    numbered, without those that hide nothing any more.
    Raises InvalidRequestError: with them, too many are not applied yet.
    """
    ids = {each.id for each in deletions}
    if len(ids.union(each.id for each in state.deletions)) > MAX_DELETIONS:
        raise _too_many(table)
    store = services.store(table)
    for outcome in store.commit(*map(HideRows, deletions), generation=state.generation):
        if isinstance(outcome, Rejected):
            rules = {each.rule for each in outcome.violations}
            if Rule.TOO_MANY_DELETIONS in rules:
                raise _too_many(table)
            if rules != {Rule.DELETION_EXISTS}:
                accepted(outcome)  # raises
    current = store.current()
    keep_notes(services, table, current)
    return tuple(each for each in current.deletions if each.id in ids)


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A deletion of a generation of a table."""

    generation: int
    deletion: Deletion


NOTE = Kind(
    "the note of a deletion",
    Note,
    "without the state, it is not known which rows it hid: see docs/reliability.md",
)


def keep_notes(services: Services, table: Table, state: TableState) -> None:
    """Put the notes of the deletions of a state that have none. A purge has its own request."""
    there = {each.path for each in services.storage.list(DELETIONS.prefix(table.id))}
    for each in state.deletions:
        if not each.purge_id and (path := DELETIONS.path(table.id, each.id)) not in there:
            NOTE.put(services.storage, path, Note(state.generation, each))


def load_notes(services: Services, table_id: str) -> list[Note]:
    """Return the notes of a table's deletions. Raises CorruptDataError: one is damaged."""
    objects = services.storage.list(DELETIONS.prefix(table_id))
    notes = (NOTE.get(services.storage, each.path) for each in objects)
    return [note for note in notes if note is not None]


def forget_deletions(services: Services, table: Table, state: TableState) -> None:
    """Forget the deletions that hide no row of any shard any more; note those that do."""
    numbers = set(needed_deletions(state, state.deletions))
    obsolete = [each for each in state.deletions if each.number not in numbers]
    if obsolete:
        change = ForgetDeletions(tuple(each.number for each in obsolete))
        services.store(table).commit(change, generation=state.generation)
    rest = tuple(each for each in state.deletions if each.number in numbers)
    keep_notes(services, table, replace(state, deletions=rest))


def _too_many(table: Table) -> InvalidRequestError:
    return InvalidRequestError(
        f"{MAX_DELETIONS:,} deletions of table {table.name!r} hide rows of shards already",
        hint=f"`dormouse compact {table.name} --all` leaves these rows out of the "
        "shards; or select more rows by each deletion",
    )


def build_deletions(
    table: Table, purge_id: str, message: SelectionMessage, now_ms: int
) -> Iterator[Deletion]:
    """Yield deletions that hide all rows that a purge selects, several if these are many keys.
    Raises InvalidRequestError: as `build_deletion`.
    """
    names = [len(field.name) + len(' AND "" = ,') for field in table.schema.keys]
    parts, room = [message] if message.where.strip() else [], 0
    for key in message.keys:
        size = sum(names[: len(key)]) + len(msgspec.json.encode(key))
        if size > room or len(parts[-1].keys) == MAX_LIST:
            parts.append(structs.replace(message, keys=()))
            room = MAX_CONDITION_CHARACTERS // 2
        parts[-1] = structs.replace(message, keys=(*parts[-1].keys, key))
        room -= size
    for number, part in enumerate(parts):
        deletion = build_deletion(table, f"{purge_id}-{number}", part, now_ms)
        if deletion is not None:
            yield structs.replace(deletion, purge_id=purge_id)


def build_deletion(
    table: Table,
    id: str,
    message: SelectionMessage,
    now_ms: int,
    permission: Permission = EVERYTHING,
) -> Deletion | None:
    """Return the deletion of all selected rows; None if no row can match. `now()` is `now_ms`.
    Raises InvalidRequestError: as `delete_rows`, or it names what `permission` hides.
    """
    schema = table.schema
    check_only_rows(message, "delete")
    if len(message.keys) > MAX_LIST:
        raise InvalidRequestError(
            f"a deletion names at most {MAX_LIST:,} keys, not {len(message.keys):,}",
            hint="delete them by several deletions, or by a condition",
        )
    selection = decode_selection(message, schema, permission=permission, version=0, time_ms=now_ms)
    condition = selection.condition
    if condition is None:
        codec = KeyCodec(schema)
        keys = [codec.from_json(key, f"key {n}") for n, key in enumerate(message.keys, start=1)]
        condition = any_of(list(_of_keys(keys, schema)))
    if table.properties.keep == "all":  # what hides the latest row of a key hides the key
        check_groups(table.name, schema, table.properties, condition.columns, "deletion")
    asked_fields(row_rules(schema, table.properties), table.properties, condition.columns)
    if SHARD.name in condition.columns:
        raise InvalidRequestError("a deletion cannot select rows by _shard: compactions change it")
    columns = named_fields(condition, schema)
    try:
        text = condition.sql
    except OverflowError as error:
        raise InvalidRequestError(
            "no deletion can name a time beyond the years 1 to 9999",
            hint="delete by a condition, such as day < DATE '0001-01-01'",
        ) from error
    sizes = (len(text), "in its normal form"), (sum(map(len, columns)), "of types")
    for size, what in sizes:
        if size > MAX_CONDITION_CHARACTERS:
            raise InvalidRequestError(
                f"the deletion has {size:,} characters {what}, more than "
                f"{MAX_CONDITION_CHARACTERS:,}",
                hint="name fewer keys, values or columns at once",
            )
    spans = ranges_to_read(table, selection.ranges, condition)
    rows = [fit_range(span.widen_to_parts(len(schema.row_keys)), schema) for span in spans]
    spans = union_ranges(rows)
    if not spans:
        return None
    tags, takes_tagged = wanted_tags(condition.expression)
    return Deletion(
        id,
        text,
        columns,
        tuple((span.low, span.high) for span in _few(spans)),
        tags=tags,
        takes_tagged=takes_tagged and selection.ranges == (KeyRange(),),
    )


def _few(spans: Sequence[KeyRange]) -> Sequence[KeyRange]:
    if len(spans) > MOST_RANGES:
        spans = [KeyRange.between(spans[0].low, spans[-1].high)]
    size_bytes = sum(len(span.low) + len(span.high or b"") for span in spans)
    return spans if size_bytes <= MAX_KEY_BYTES else [KeyRange()]


def _of_keys(keys: Sequence[Key], schema: Schema) -> Iterator[Expression]:
    """Yield conditions of which one is true of the rows that begin with one of these keys."""
    columns = [Column(field.name, field.type) for field in schema.keys]
    first = columns[0]
    if alone := [_literal(key[0], first) for key in keys if len(key) == 1]:
        yield truth("IN", first, *alone) if len(alone) > 1 else truth("=", first, alone[0])
    for key in keys:
        if len(key) > 1:
            parts = zip(columns, key, strict=False)
            yield truth("AND", *(truth("=", c, _literal(part, c)) for c, part in parts))


def _literal(part: KeyPart, column: Column) -> Literal:
    if isinstance(column.type, DecimalType) and isinstance(part, int):
        return Literal(from_decimal_count(part, column.type), column.type)
    return Literal(part, column.type)


_STATEMENT = re.compile(
    rf"""{SPACE}DELETE\b{SPACE}FROM\b{SPACE}(?:"((?:[^"]|"")+)"|(\w++)){SPACE}(?:WHERE\b{SPACE}
    ((?:(?>'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?(?:\*/|\Z)|[^;]))+))?(?:;{SPACE})?""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""A semicolon in a text, a name or a comment does not end it. A comment without an end is none for
the condition; that it goes on to the end here keeps many of them from taking long."""


def parse_delete(text: str) -> tuple[str, str]:
    """Return the table and the condition of a DELETE in SQL, with space in place of what is before
    it, so that errors say where it is. Without WHERE, the condition is true of all rows.
    Raises InvalidRequestError: it has more parts than these.
    """
    match = _STATEMENT.fullmatch(text)
    if match is None:
        raise InvalidRequestError(
            "this is no DELETE that is known here",
            hint="write DELETE FROM table WHERE condition, one at a time",
        )
    quoted, plain, where = match.groups()
    before = re.sub(r"\S", " ", text[: match.start(3)]) if where else ""
    return quoted.replace('""', '"') if quoted else plain, before + (where or "true").rstrip()


# forget_subjects: forget the keys by which values of some subjects are encrypted.
#
# No object is touched, and none need be: without its key, a value is noise wherever it is. A crash
# leaves some keys forgotten, and the redelivery forgets the rest. The answer rests on a read of
# every key after the last write.


def forget_subjects(services: Services, table: Table, request: ForgetSubjects) -> RequestResult:
    """Forget the keys of subjects; return how many there were.

    Raises:
        InvalidRequestError: the table has no keys of subjects, or one is no value of their column.
        ContendedError: their rows are being ingested all the time; retry the message.
    """
    column = subject_of(table.schema)
    if not request.subjects:
        raise InvalidRequestError("the request names no subject", hint="name one or more")
    names = {
        subject_name(table.id, part_from_json(each, column, f"subjects[{number}]"))
        for number, each in enumerate(request.subjects)
    }
    return RequestResult(counts=Counts(keys=services.keys.subjects.forget(table.id, names)))
