"""The keys of subjects: made once, forgotten for good, and lost only if it is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import pytest
from cachetools import TTLCache

from dormouse.aws.items import DynamoItems
from dormouse.client.deployment import instance_of
from dormouse.encryption import NAME_BYTES, SubjectKey, subject_name
from dormouse.errors import ContendedError, CorruptDataError, UnavailableError
from dormouse.folder.sqlite import Database, SqliteItems
from dormouse.items.records import KEPT_SECONDS, ItemSubjects
from dormouse.items.store import Change, ItemStore, Key, put
from dormouse.messages.requests import (
    CompactTable,
    CreateTable,
    DeleteTable,
    ForgetSubjects,
    SetProperties,
)
from dormouse.messages.stages import encode
from dormouse.schema.schema import parse_schema
from tests.contract.folders import database_in
from tests.contract.mocked_aws import dynamodb_table, mocked_aws
from tests.support.memory_items import MemoryItems
from tests.template.conftest import NAMES
from tests.template.flow import Flow, deployed

TABLE = "t" * 16
MANY = [subject_name(TABLE, number) for number in range(250)]
"""More than one transaction takes."""
FEW = MANY[:3]


@dataclass
class Home:
    """A store of items, in which each process has keys of its own, as a new one does."""

    items: ItemStore
    bytes_of_it: Callable[[], bytes]
    erase: Callable[[], object] = lambda: None
    now: list[float] = field(default_factory=lambda: [0.0])

    def keys(self) -> ItemSubjects:
        return ItemSubjects(self.items, self.erase, TTLCache(9, KEPT_SECONDS, lambda: self.now[0]))

    def known(self, *keys: SubjectKey) -> list[bytes | None]:
        marks = [key.mark for key in keys]
        known = self.keys().known(TABLE, marks)
        return [(key.key if key else None) for key in map(known.__getitem__, marks)]


@pytest.fixture(params=["memory", "dynamodb", "sqlite"])
def home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Home]:
    if request.param == "memory":
        items = MemoryItems()
        yield Home(items, lambda: repr(items.kept).encode())
    elif request.param == "sqlite":
        with database_in(tmp_path) as database:
            yield Home(SqliteItems(database), lambda: files_in(tmp_path), database.forget)
    else:
        with mocked_aws(monkeypatch):
            client = dynamodb_table("subjects", "k", "i")
            store = DynamoItems(client, {"subjects": "subjects"})
            yield Home(store, lambda: repr(client.scan(TableName="subjects")["Items"]).encode())


def files_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def is_in(key: SubjectKey, body: bytes) -> bool:
    """Return whether a key is in some bytes, as it is or as Python shows it."""
    assert key.key is not None
    return key.key in body or repr(key.key)[2:-1].encode() in body


def test_all_processes_have_the_same_key_of_a_subject_and_each_subject_another(home: Home) -> None:
    first, second = home.keys().made(TABLE, MANY), home.keys().made(TABLE, MANY[::-1])
    assert {name: key.key for name, key in first.items()} == {
        name: key.key for name, key in second.items()
    }
    assert len({key.key for key in first.values()}) == len(MANY)
    assert {key.generation for key in first.values()} == {1}
    assert home.known(*first.values()) == [key.key for key in first.values()]
    other = home.keys().made("u" * 16, FEW)
    assert all(other[name].key != first[name].key for name in FEW)
    assert home.keys().made(TABLE, []) == home.keys().known(TABLE, []) == {}


def test_a_key_that_is_forgotten_is_nowhere_and_the_others_stay(home: Home) -> None:
    keys = home.keys().made(TABLE, MANY)
    gone, rest = MANY[:120], MANY[120:]
    body = home.bytes_of_it()
    assert all(is_in(key, body) for key in keys.values())
    assert home.keys().forget(TABLE, gone) == 120
    body = home.bytes_of_it()
    assert not any(is_in(keys[name], body) for name in gone)
    assert home.known(*(keys[name] for name in gone)) == [None] * 120
    assert home.known(*(keys[name] for name in rest)) == [keys[name].key for name in rest]
    assert home.keys().forget(TABLE, gone) == 0, "there was none any more"


def test_who_comes_again_gets_another_key_and_what_was_forgotten_stays_so(home: Home) -> None:
    (name,) = FEW[:1]
    keys = []
    for generation in (1, 2, 3):
        keys.append(home.keys().made(TABLE, [name])[name])
        assert keys[-1].generation == generation
        assert home.known(*keys) == [*[None] * (generation - 1), keys[-1].key]
        home.keys().forget(TABLE, [name])
    assert home.known(*keys) == [None] * 3


def test_a_process_reads_on_for_a_minute_and_sees_what_is_newer_at_once(home: Home) -> None:
    (name,) = FEW[:1]
    old, reader = home.keys().made(TABLE, [name])[name], home.keys()
    assert reader.known(TABLE, [old.mark])[old.mark]
    home.keys().forget(TABLE, [name])
    home.now[0] = KEPT_SECONDS - 1
    assert reader.known(TABLE, [old.mark])[old.mark], "it has it still"
    home.now[0] = KEPT_SECONDS + 1
    assert reader.known(TABLE, [old.mark]) == {old.mark: None}
    new = home.keys().made(TABLE, [name])[name]
    known = reader.known(TABLE, [old.mark, new.mark])
    assert known[old.mark] is None and known[new.mark] is not None
    reader.forget(TABLE, [name])
    assert reader.known(TABLE, [new.mark]) == {new.mark: None}, "it forgot the key itself"


def test_a_key_that_is_lost_is_an_error_until_it_is_forgotten(home: Home) -> None:
    keys = home.keys().made(TABLE, FEW)
    home.items.delete([place(FEW[0])])
    home.items.write(put(place(FEW[1]), b"\0\0\0\2", expires_s=9))
    lost, replaced, whole = keys.values()
    with pytest.raises(CorruptDataError, match="lost"):
        home.known(lost, whole)
    assert home.known(replaced, whole) == [None, whole.key]
    assert home.keys().forget(TABLE, FEW[:1]) == 0
    assert home.known(lost, whole) == [None, whole.key]
    again = home.keys().made(TABLE, FEW[:1])[FEW[0]]
    assert home.known(lost, again) == [None, again.key]


def test_a_key_that_is_damaged_is_refused(home: Home) -> None:
    key = home.keys().made(TABLE, FEW)[FEW[0]]
    (item,) = home.items.get(place(FEW[1]))
    assert item is not None
    home.items.write(put(place(FEW[0]), item.read()))
    assert home.known(key) != [key.key]
    home.items.write(put(place(FEW[0]), "text"))
    with pytest.raises(CorruptDataError, match="damaged"):
        home.known(key)
    with pytest.raises(CorruptDataError, match="damaged"):
        home.keys().made(TABLE, FEW)
    assert home.keys().forget(TABLE, FEW[:1]) == 0
    assert home.known(key) == [None]


def place(name: bytes) -> Key:
    return Key("subjects", f"{TABLE}#{name.hex()[0]}", name.hex())


def test_all_of_a_table_is_deleted_and_nothing_of_another(home: Home) -> None:
    home.keys().made(TABLE, MANY)
    kept = home.keys().made("u" * 16, FEW)
    home.keys().delete(TABLE)
    assert [*home.items.scan("subjects", TABLE)] == []
    assert home.keys().made("u" * 16, FEW)[FEW[0]].key == kept[FEW[0]].key


class Interrupted:
    """Items of which a write runs what is to come between a read and it, once for each."""

    def __init__(self, items: ItemStore, *between: Callable[[], object]) -> None:
        self.items, self.between = items, [*between]

    def __getattr__(self, name: str) -> object:
        return getattr(self.items, name)

    def write(self, *changes: Change) -> bool:
        if self.between:
            self.between.pop(0)()
        return self.items.write(*changes)


def test_who_makes_or_forgets_a_key_at_once_with_others_ends_as_one_after_the_other(
    home: Home,
) -> None:
    others = home.keys()
    made = home.keys().made
    late = ItemSubjects(Interrupted(home.items, lambda: made(TABLE, FEW[1:2])))  # type: ignore[arg-type]
    keys = late.made(TABLE, FEW)
    assert {n: k.key for n, k in keys.items()} == {
        n: k.key for n, k in others.made(TABLE, FEW).items()
    }
    late = ItemSubjects(Interrupted(home.items, lambda: others.forget(TABLE, FEW)))  # type: ignore[arg-type]
    assert late.forget(TABLE, FEW) == 0, "others did"
    assert home.known(*keys.values()) == [None] * 3
    always = [lambda: (others.made(TABLE, FEW), others.forget(TABLE, FEW))] * 99
    with pytest.raises(ContendedError):
        ItemSubjects(Interrupted(home.items, *always)).made(TABLE, FEW)  # type: ignore[arg-type]


def test_what_a_crash_left_of_a_request_is_forgotten_by_the_next(home: Home) -> None:
    keys = home.keys().made(TABLE, MANY)

    def die() -> None:
        raise UnavailableError("no answer")

    dying = ItemSubjects(Interrupted(home.items, lambda: None, die))  # type: ignore[arg-type]
    with pytest.raises(UnavailableError):
        dying.forget(TABLE, MANY)
    assert sum(key is None for key in home.known(*keys.values())) == 100
    assert home.keys().forget(TABLE, MANY) == 150
    body = home.bytes_of_it()
    assert not any(is_in(key, body) for key in keys.values())


def test_a_subject_has_one_name_in_all_types_that_its_column_can_get() -> None:
    assert subject_name(TABLE, 42) == subject_name(TABLE, 42)
    others = [subject_name(TABLE, b"42"), subject_name("u" * 16, 42), subject_name(TABLE, "43")]
    assert len({*others, subject_name(TABLE, "42")}) == 4
    assert len(subject_name(TABLE, "")) == NAME_BYTES


def test_bytes_of_keys_do_not_stay_in_a_folder_that_others_read(tmp_path: Path) -> None:
    """Who reads at that moment keeps the WAL; the next request empties it, or the last to close."""
    with database_in(tmp_path) as database:
        subjects = ItemSubjects(SqliteItems(database), database.forget)
        key = subjects.made(TABLE, FEW)[FEW[0]]
        other = Database(database.path)
        with other.reading() as connection:
            connection.select("SELECT count(*) FROM items")
            subjects.forget(TABLE, FEW)
        assert subjects.forget(TABLE, FEW) == 0
        assert not is_in(key, files_in(tmp_path))
        other.close()


def test_a_table_on_aws_has_keys_of_subjects_and_forgets_them() -> None:
    """By the real functions, which ask for no more than the template grants them."""
    with deployed(Flow) as flow:
        kms = boto3.client("kms")
        key = kms.create_key()["KeyMetadata"]["KeyId"]
        kms.create_alias(AliasName=f"alias/dormouse/{NAMES.instance}/default", TargetKeyId=key)
        schema = parse_schema("id:long, who:string, ssn:string?", ["id"]).to_json()
        settings: dict[str, object] = {
            "encrypted_columns": "ssn",
            "subject_column": "who",
            "compaction_files": 99,
        }
        flow.send("admin", encode(CreateTable("1", "people", schema, settings)))
        for number in range(2):
            rows = "".join(f"{number}{w},w{w},Quokka{w}\n" for w in range(4))
            flow.drop(f"people/{number}.csv", b"id,who,ssn\n" + rows.encode())
            flow.settle()
        request = ForgetSubjects("2", "people", ("w1", "w2", "nobody"), reply=True)
        flow.send("admin", encode(request))
        assert [reply["counts"] for reply in replies(flow)] == [{"keys": 2}]
        assert read(flow) == ["Quokka0", None, None, "Quokka3"] * 2
        flow.drop("people/late.csv", b"id,who,ssn\n99,w1,QuokkaNew\n")
        flow.settle()
        flow.send("admin", encode(request))  # delivered again: it was for the key that was there
        assert read(flow) == [*["Quokka0", None, None, "Quokka3"] * 2, "QuokkaNew"]
        flow.send("admin", encode(SetProperties("3", "people", {"data_key": 2})))
        flow.send("admin", encode(CompactTable("4", "people", all=True)))
        flow.settle()
        assert read(flow) == [*["Quokka0", None, None, "Quokka3"] * 2, "QuokkaNew"]
        asked = {
            stage: {need.action for need in needs if need.resource.endswith("-subjects")}
            for stage, needs in flow.requests.items()
        }
        batched = "dynamodb:BatchGetItem"
        assert asked["ingest"] == {"dynamodb:GetItem", batched, "dynamodb:PutItem"}
        assert asked["compact"] == {batched}
        assert asked["administer"] == {batched, "dynamodb:PutItem"}
        flow.send("admin", encode(DeleteTable("5", "people")))
        scanned = boto3.client("dynamodb").scan(TableName=NAMES.table("subjects"))
        assert scanned["Items"] == []


def read(flow: Flow) -> list[str | None]:
    flow.wirings.clear()  # as a minute later
    table = instance_of(flow.wiring()).table("people")
    found: list[str | None] = table.query(columns=["ssn"]).to_arrow()["ssn"].to_pylist()
    return found


def replies(flow: Flow) -> list[dict[str, object]]:
    import json

    url = flow.sqs.get_queue_url(QueueName=NAMES.queue("replies"))["QueueUrl"]
    received = flow.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return [json.loads(message["Body"]) for message in received.get("Messages", ())]
