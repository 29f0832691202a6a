"""What a real Debezium says of a real PostgreSQL becomes the rows that PostgreSQL has at the end.

In each form of messages, and in whatever order the lines come: positions alone say what is newest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from dormouse.client.instance import Instance
from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Field, Schema, parse_schema
from dormouse.schema.types import Primitive
from tests.engines.debezium_feed import feed
from tests.engines.install import LeftOutError

POSITION = "position"
FORMS = ("described", "plain", "flattened")


@dataclass(frozen=True)
class Mirrored:
    """A table of PostgreSQL, the columns of its copy, and how its rows are written as JSON."""

    created: str
    columns: str
    keys: Sequence[str]
    query: str
    forms: Sequence[str] = FORMS

    def schema(self, *more: str) -> Schema:
        """Return the schema of the copy, with more columns of text, which are not null."""
        copied = parse_schema(self.columns, self.keys, [])
        added = (Field(name, Primitive.STRING) for name in more)
        return Schema(copied.row_keys, (), (*copied.values, *added))


TABLES = {
    "mice": Mirrored(
        """(id bigint PRIMARY KEY, name text, price numeric(10,2), any_number numeric,
        ratio double precision, small real, born date, at timestamp(3), at_micros timestamp,
        seen timestamptz, clock time, clock_ms time(3), clock_zone timetz, is_awake boolean,
        body bytea, mark uuid, facts jsonb, tags text[], counts int[], days date[],
        prices numeric[])""",
        """id: long, name: string?, price: decimal(10,2)?, any_number: decimal(20,5)?,
        ratio: double?, small: float?, born: date?, at: timestamp_ntz?, at_micros: timestamp_ntz?,
        seen: timestamp?, clock: time?, clock_ms: time?, clock_zone: time?, is_awake: boolean?,
        body: bytes?, mark: uuid?, facts: string?, tags: list<string>?, counts: list<int>?,
        days: list<date>?, prices: list<decimal(20,5)>?""",
        ["id"],
        """SELECT json_build_object('id', id, 'name', name, 'price', price, 'any_number',
        any_number, 'ratio', ratio, 'small', small, 'born', born, 'at', at, 'at_micros', at_micros,
        'seen', seen, 'clock', clock, 'clock_ms', clock_ms, 'clock_zone',
        (clock_zone AT TIME ZONE 'UTC')::time, 'is_awake', is_awake, 'body',
        encode(body, 'base64'), 'mark', mark, 'facts', facts::text, 'tags', tags, 'counts', counts,
        'days', days, 'prices', prices)::text FROM mice""",
        ("described", "flattened"),
    ),
    "notes": Mirrored(
        """(owner text, id bigint, price numeric(10,2), day date, seen timestamptz, body text,
        PRIMARY KEY (owner, id))""",
        """owner: string, id: long, price: decimal(10,2)?, day: date?, seen: timestamp?,
        body: string?""",
        ["owner", "id"],
        "SELECT row_to_json(notes)::text FROM notes",
    ),
    "coins": Mirrored(
        "(code numeric(8,2) PRIMARY KEY, number numeric(6,0), body text)",
        "code: string, number: long?, body: string?",
        ["code"],
        "SELECT json_build_object('code', code::text, 'number', number, 'body', body)::text "
        "FROM coins",
        ("described", "flattened"),
    ),
    "whole": Mirrored(
        "(id bigint PRIMARY KEY, n bigint, big text, bytes bytea)",
        "id: long, n: long?, big: string?, bytes: bytes?",
        ["id"],
        "SELECT json_build_object('id', id, 'n', n, 'big', big, 'bytes', "
        "translate(encode(bytes, 'base64'), E'\\n', ''))::text FROM whole",
    ),
}
BIG = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 300) n)"
BEFORE = f"""
CREATE TABLE signals (id text PRIMARY KEY, type text, data text);
CREATE TABLE emptied (id bigint PRIMARY KEY);
CREATE TABLE torn {TABLES["whole"].created};
ALTER TABLE whole REPLICA IDENTITY FULL;
INSERT INTO mice (id, name, price) SELECT n, 'mouse ' || n, n * 1.5 FROM generate_series(1, 9) n;
INSERT INTO notes SELECT 'owner ' || n % 3, n, n FROM generate_series(1, 30) n;
INSERT INTO coins VALUES (1, 1, 'one'), (2.50, 12, 'half'), (3, NULL, 'gone');
"""
AFTER = f"""-- 1
INSERT INTO mice VALUES (100, 'Hazel', -5.25, 1.500, 0.1, 1.5, '2024-02-29',
    '2024-01-02 03:04:05.678', '2024-01-02 03:04:05.678901', '2024-01-02 03:04:05.123456+02',
    '10:30:45.5', '10:30:45.123', '10:30:45.5+02', true, '\\x00ff',
    'b68a35a7-17ad-35b3-af2a-ae46edb4545b', '{{"a": 1}}', '{{a,NULL,"b c"}}', '{{1,NULL}}',
    '{{2024-01-01}}', '{{1.50,-0.25}}');
INSERT INTO mice (id, born, at, seen) VALUES (101, '0001-01-01', '1582-10-15', '9999-12-31 23:59Z');
UPDATE mice SET name = 'other' WHERE id = 100;
UPDATE coins SET code = code + 1, body = 'other' WHERE code = 2.50;
DELETE FROM coins WHERE code = 3;
INSERT INTO whole VALUES (1, 1, {BIG}, {BIG}::bytea);
UPDATE whole SET n = 2;
INSERT INTO torn VALUES (1, 1, {BIG}, {BIG}::bytea);
UPDATE torn SET n = 2;
INSERT INTO emptied VALUES (1);
TRUNCATE emptied;
INSERT INTO emptied VALUES (2);
"""
SNAPSHOT_MEANWHILE = """-- 2
BEGIN;
UPDATE notes SET body = 'changed before the snapshot, committed after it';
-- 1
INSERT INTO signals VALUES ('again', 'execute-snapshot',
    '{"data-collections": ["public.notes"], "type": "incremental"}');
-- 1
DO $$ BEGIN
    FOR attempt IN 1..100 LOOP
        EXIT WHEN (SELECT count(*) FROM signals WHERE type = 'snapshot-window-close') >= 6;
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
-- 2
COMMIT;
"""


def history(seed: int, statements: int) -> str:
    """Return changes of `notes` at random, some of them in transactions that are rolled back."""
    chance = random.Random(seed)

    def statement() -> str:
        row = f"owner = 'owner {chance.randrange(3)}' AND id = {chance.randrange(40)}"
        some = f"id % 7 = {chance.randrange(7)}"
        return chance.choice(
            [
                f"UPDATE notes SET body = 'b{chance.random()}' WHERE {row}",
                f"UPDATE notes SET price = {chance.randrange(-900, 900)} / 100.0 WHERE {row}",
                f"UPDATE notes SET body = body, day = '2024-02-29' WHERE {some}",
                f"DELETE FROM notes WHERE {row}",
                f"UPDATE notes SET id = id + 40 WHERE {row} AND NOT EXISTS "
                "(SELECT FROM notes o WHERE o.owner = notes.owner AND o.id = notes.id + 40)",
                f"DELETE FROM notes WHERE {row}; INSERT INTO notes VALUES ('owner 0', "
                f"{chance.randrange(40)}) ON CONFLICT DO NOTHING",
                f"INSERT INTO notes VALUES ('owner {chance.randrange(3)}', "
                f"{chance.randrange(40)}, 1.5, '2024-01-01', now(), 'new') ON CONFLICT "
                "(owner, id) DO UPDATE SET body = 'again', seen = excluded.seen",
            ]
        )

    parts = []
    for _ in range(statements):
        some = "; ".join(statement() for _ in range(chance.randrange(1, 5)))
        end = chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])
        parts.append(f"BEGIN; {some}; {end};")
    return "".join(f"-- 1\n{part}\n" for part in parts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("debezium")
    created = [f"CREATE TABLE {name} {table.created};" for name, table in TABLES.items()]
    (made / "before.sql").write_text("\n".join([*created, BEFORE]))
    (made / "after.sql").write_text(AFTER + history(1, 40) + SNAPSHOT_MEANWHILE + history(2, 20))
    for name, table in TABLES.items():
        (made / f"{name}.query.sql").write_text(table.query)
    try:
        feed(made)
    except LeftOutError as error:
        pytest.skip(str(error))
    return made


def lines(folder: Path, form: str, *topics: str) -> list[str]:
    texts = [(folder / f"{form}.{topic}.jsonl").read_text() for topic in topics]
    return [line for text in texts for line in text.splitlines(keepends=True)]


def newest(
    files: Sequence[Sequence[str]], table: Mirrored, folder: Path, by: str = POSITION
) -> list[dict[str, object]]:
    """Return the rows of a table into which files of messages were ingested."""
    rules = {"keep": "latest", "latest_by": by, "change_data": "debezium"}
    with Instance.open(Path(mkdtemp(dir=folder)) / "mice", background=False) as instance:
        handle = instance.create_table("t", table.schema(*filter(None, (by,))), rules)
        for number, file in enumerate(files):
            path = folder / f"{number}.jsonl"
            path.write_text("".join(file))
            handle.ingest(path).wait()
            if number == 2:
                instance.compact("t", everything=True)
                instance.wait()
        names = [field.name for field in table.schema().fields]
        return handle.query(columns=names).to_arrow().to_pylist()


def expected(folder: Path, name: str) -> list[dict[str, object]]:
    with Instance.open(Path(mkdtemp(dir=folder)) / "mice", background=False) as instance:
        handle = instance.create_table("t", TABLES[name].schema())
        handle.ingest(folder / f"{name}.rows.jsonl").wait()
        return handle.query().to_arrow().to_pylist()


def in_order(rows: Sequence[dict[str, object]], table: Mirrored) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: tuple(map(str, (row[name] for name in table.keys))))


CASES = [(name, form) for name, table in TABLES.items() for form in table.forms]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_the_newest_rows_are_those_of_the_source_in_whatever_order_lines_come(
    name: str, form: str, folder: Path, tmp_path: Path
) -> None:
    table = TABLES[name]
    found = lines(folder, form, f"public.{name}", "transaction")
    wanted = in_order(expected(folder, name), table)
    assert wanted
    assert in_order(newest([found], table, tmp_path), table) == wanted
    assert in_order(newest([found[::-1]], table, tmp_path), table) == wanted
    for seed in range(3):
        mixed = random.Random(seed).sample(found, len(found))
        files = [mixed[at::4] for at in range(4)]
        assert in_order(newest([*files, files[0]], table, tmp_path), table) == wanted


@pytest.mark.parametrize("form", FORMS)
def test_without_positions_the_order_of_the_stream_gives_the_same(
    form: str, folder: Path, tmp_path: Path
) -> None:
    table = TABLES["notes"]
    found = newest([lines(folder, form, "public.notes")], table, tmp_path, by="")
    assert in_order(found, table) == in_order(expected(folder, "notes"), table)


@pytest.mark.parametrize("form", FORMS)
def test_an_update_of_a_row_with_large_values_is_refused_without_full_identity(
    form: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(RefusedSourceError, match=r"column '(big|bytes)'") as refused:
        newest([lines(folder, form, "public.torn")], TABLES["whole"], tmp_path)
    assert "REPLICA IDENTITY FULL" in str(refused.value)


@pytest.mark.parametrize("by", ["", POSITION])
@pytest.mark.parametrize("form", ["described", "plain"])
def test_a_truncate_hides_the_rows_before_it(
    form: str, by: str, folder: Path, tmp_path: Path
) -> None:
    table = Mirrored("", "id: long", ["id"], "")
    found = lines(folder, form, "public.emptied")
    assert newest([found], table, tmp_path, by) == [{"id": 2}]
    if by:
        assert newest([[each] for each in found[::-1]], table, tmp_path) == [{"id": 2}]


def test_without_a_schema_part_a_time_of_day_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedSourceError, match="line 1?[0-9], column '(clock|at|clock_ms)"):
        newest([lines(folder, "plain", "public.mice")], TABLES["mice"], tmp_path)
