"""Queries that the instance answers: asked by messages, read back from files."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.client.instance import Instance
from dormouse.client.queries import ask, result_of
from dormouse.client.table import TableHandle
from dormouse.errors import (
    CorruptDataError,
    DamagedShardError,
    InvalidRequestError,
    InvariantError,
    LimitExceededError,
    NotFoundError,
    TimedOutError,
)
from dormouse.features.queries import END, QueryEnd
from dormouse.features.queries import QUERIES as QUERY_RECORDS
from dormouse.features.requests import ResultFile
from dormouse.messages.stages import AnswerQuery, CancelQuery, OutboundMessage
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, ListType, Primitive
from dormouse.storage import FolderStorage
from dormouse.stored.paths import query_manifest_path, query_prefix
from tests.support.instances import InMemory
from tests.support.world import World, letters


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path / "world"))


@pytest.fixture
def handle(memory: InMemory) -> TableHandle:
    """A table of two leaves with the letters a, b, x, y; queries are cut."""
    memory.world.create(splits=[("m",)], query_cut_bytes=1, query_task_bytes=1)
    memory.world.drop("letters/1.parquet", letters("abxy"))
    memory.world.settle()
    return memory.instance.table("letters")


QUERIES: list[Callable[[TableHandle, str], pa.Table]] = [
    lambda t, run: t.query(run=run).to_arrow(),
    lambda t, run: t.query(exact="b", run=run).to_arrow(),
    lambda t, run: t.query([("b", "y")], exact=["a"], run=run).to_arrow(),
    lambda t, run: t.query(where="letter > 'a'", columns=["at", "letter"], run=run).to_arrow(),
    lambda t, run: t.query(limit=3, run=run).to_arrow(),
    lambda t, run: t.query(limit=0, run=run).to_arrow(),
    lambda t, run: t.query(exact="q", run=run).to_arrow(),
    lambda t, run: t.query(as_of=t.state().version, run=run).to_arrow(),
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_remote_query_returns_what_one_here_does(
    handle: TableHandle, query: Callable[[TableHandle, str], pa.Table]
) -> None:
    assert query(handle, "remote").equals(query(handle, "here"))


def test_a_remote_result_has_the_version_and_counts_what_the_instance_read(
    handle: TableHandle,
) -> None:
    found = handle.query(run="remote")
    assert found.version == handle.state().version
    assert (found.reads.requests > 0, found.reads.size_bytes > 0) == (True, True)
    with pytest.raises(NotFoundError):
        handle.query(as_of=99, run="remote")


def test_who_asks_needs_no_object_of_the_data_bucket(memory: InMemory, handle: TableHandle) -> None:
    poor = replace(handle.services, storage=FolderStorage(memory.world.folder / "nothing"))
    with pytest.raises(DamagedShardError):
        replace(handle, services=poor).query().to_arrow()
    assert replace(handle, services=poor).query(exact="a", run="remote").to_arrow().num_rows == 1


def test_statements_run_remotely_with_parameters(memory: InMemory, handle: TableHandle) -> None:
    text = "SELECT count(*) AS n, min(letter) AS l FROM letters WHERE letter >= :least"
    found = memory.instance.sql(text, {"least": "b"}, run="remote")
    assert found.to_arrow().to_pylist() == [{"n": 3, "l": "b"}]
    assert found.versions == {"letters": (handle.state().version,)}
    assert memory.instance.sql("SELECT $1 + 1 AS x", [1], run="remote").to_arrow().to_pylist() == [
        {"x": 2}
    ]
    with pytest.raises(InvalidRequestError, match="Decimal, which no message"):
        memory.instance.sql("SELECT :x", {"x": Decimal(1)}, run="remote")


def test_every_type_comes_back_as_it_was(memory: InMemory) -> None:
    fields = (
        Field("u", Primitive.UUID),
        Field("d", DecimalType(38, 10), nullable=True),
        Field("t", Primitive.TIMESTAMP_NS, nullable=True),
        Field("l", ListType(Primitive.UUID), nullable=True),
        Field("b", Primitive.BYTES, nullable=True),
    )
    schema = Schema((Field("k", Primitive.LONG),), values=fields)
    one = {"k": 1, "u": uuid.UUID(int=5).bytes, "d": Decimal("1.5"), "t": 7, "b": b"\xff"}
    memory.world.create("all", schema)
    memory.world.drop("all/1.parquet", pa.Table.from_pylist([one], arrow_schema(schema)))
    memory.world.settle()
    handle = memory.instance.table("all")
    here, there = handle.query().to_arrow(), handle.query(run="remote").to_arrow()
    assert there.schema.equals(here.schema)
    assert there.equals(here)


def test_errors_of_the_instance_are_of_the_classes_that_they_have_here(
    memory: InMemory, handle: TableHandle
) -> None:
    with pytest.raises(InvalidRequestError, match="lettr"):
        handle.query(where="lettr = 'a'", run="remote")
    with pytest.raises(NotFoundError, match="letters"):
        memory.instance.sql("SELECT * FROM lettrs", run="remote")
    memory.instance.set_properties("letters", {"query_limit_rows": 1})
    with pytest.raises(LimitExceededError, match="more than 1 rows"):
        handle.query(run="remote")
    memory.instance.delete_table("letters")
    with pytest.raises(NotFoundError):
        handle.query(run="remote")


def test_what_selects_nothing_is_refused_before_anything_is_sent(
    memory: InMemory, handle: TableHandle
) -> None:
    for wrong in ({"exact": []}, {"columns": []}, {"run": "there"}, {"timeout_seconds": 0}):
        with pytest.raises(InvalidRequestError):
            handle.query(**{"run": "remote", **wrong})  # type: ignore[arg-type]
    assert not memory.world.queue


def test_a_query_that_takes_too_long_is_cancelled(memory: InMemory, handle: TableHandle) -> None:
    memory.sleeper.asleep = True
    limit = 5
    with pytest.raises(TimedOutError):
        handle.query(run="remote", timeout_seconds=limit)
    sent = [m.message for m in memory.world.queue]
    assert [type(m) for m in sent] == [AnswerQuery, CancelQuery]
    assert isinstance(sent[0], AnswerQuery)
    assert sent[0].limits.seconds == limit
    memory.world.settle()
    (record,) = memory.instance.queries()
    assert record.state in ("cancelled", "failed")


def test_an_interrupted_query_is_cancelled(
    memory: InMemory, handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(memory.sleeper, "sleep", interrupt)
    object.__setattr__(handle.polling, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        handle.query(run="remote")
    assert isinstance(memory.world.queue[-1].message, CancelQuery)


def test_values_of_numpy_are_sent_as_those_of_python(memory: InMemory) -> None:
    import numpy as np

    given = [np.int64(1), np.float64(0.5), np.str_("a"), True, None]
    found = memory.instance.sql("SELECT $1 + 1, $2 + 1, $3, $4, $5", given, run="remote")
    assert list(found.to_arrow().to_pylist()[0].values()) == [2, 1.5, "a", True, None]


@pytest.mark.parametrize(
    "given",
    [
        lambda t, i: t.query(where=5, run="remote"),
        lambda t, i: t.query(limit="5", run="remote"),
        lambda t, i: t.query(columns=[5], run="remote"),
        lambda t, i: i.sql(5, run="remote"),
        lambda t, i: i.sql("SELECT $1", [float("nan")], run="remote"),
        lambda t, i: i.sql("SELECT $1", [-float("inf")], run="remote"),
        lambda t, i: i.asked("x="),
        lambda t, i: i.ingest_files("letters", "letters/2.parquet"),
        lambda t, i: t.prove_purge(5),
    ],
)
def test_what_no_message_can_have_is_refused_and_not_sent(
    memory: InMemory, handle: TableHandle, given: Callable[[TableHandle, Instance], object]
) -> None:
    with pytest.raises(InvalidRequestError):
        given(handle, memory.instance)
    assert not memory.world.queue


def test_a_cancelled_query_has_no_result_and_says_so(memory: InMemory, handle: TableHandle) -> None:
    memory.world.queue.append(
        OutboundMessage("queries", AnswerQuery(query_id="q", table="letters"))
    )
    asked = memory.instance.asked("q")
    asked.cancel()
    memory.world.queue.rotate(1)  # the cancellation comes first
    with pytest.raises(NotFoundError, match="was cancelled"):
        asked.result()
    assert asked.record().state == "cancelled"


def test_queries_are_listed_the_newest_first(memory: InMemory, handle: TableHandle) -> None:
    handle.query(run="remote").close()
    memory.world.clock.advance(seconds=1)
    memory.instance.sql("SELECT 1 AS one", run="remote").close()
    listed = memory.instance.queries()
    assert [(r.subject, r.state, r.rows) for r in listed] == [
        ("SQL", "finished", 1),
        ("letters", "finished", 4),
    ]
    assert listed[1].parts == listed[1].parts_done == 2
    assert memory.instance.asked(listed[1].job_id).result().to_arrow().num_rows == 4
    assert "2 queries" in repr(listed)


def test_an_id_of_another_question_is_refused(memory: InMemory, handle: TableHandle) -> None:
    first = AnswerQuery(query_id="q", table="letters")
    services, queues, polling = handle.services, handle.queues, handle.polling
    assert ask(services, queues, polling, first, 60).result().to_arrow().num_rows == 4
    other = AnswerQuery(query_id="q", table="letters", sql="", selection=first.selection, to="")
    again = ask(services, queues, polling, other, 60)
    assert again.result().to_arrow().num_rows == 4  # the same question has the same result
    different = ask(services, queues, polling, AnswerQuery(query_id="q", sql="SELECT 1"), 60)
    with pytest.raises(InvalidRequestError, match="another query has the id 'q'"):
        different.result()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_results_in_formats_with_all_types_are_read_back(
    memory: InMemory, handle: TableHandle, form: str
) -> None:
    message = AnswerQuery(query_id="q", table="letters", format=form)  # type: ignore[arg-type]
    memory.world.queue.append(OutboundMessage("queries", message))
    found = memory.instance.asked("q").result().to_arrow()
    assert found.equals(handle.query().to_arrow())


def test_a_result_of_text_is_not_read_back(memory: InMemory, handle: TableHandle) -> None:
    message = AnswerQuery(query_id="q", table="letters", format="csv")
    memory.world.queue.append(OutboundMessage("queries", message))
    result = memory.instance.asked("q").result()
    with pytest.raises(InvalidRequestError, match="not read back"):
        result.to_arrow()


def test_a_flipped_bit_of_a_remote_result_is_noticed(memory: InMemory, handle: TableHandle) -> None:
    memory.world.queue.append(
        OutboundMessage("queries", AnswerQuery(query_id="q", table="letters"))
    )
    asked = memory.instance.asked("q")
    local = memory.world.folder / "results" / query_prefix("q") / asked.wait().files[0].name
    body = bytearray(local.read_bytes())
    local.chmod(0o644)
    body[40] ^= 1  # in the first page of values
    local.write_bytes(body)
    with pytest.raises(CorruptDataError):
        asked.result().to_arrow()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("harm", ["cut", "emptied", "deleted", "flipped"])
def test_damaged_files_of_a_result_are_no_rows(
    memory: InMemory, handle: TableHandle, form: str, harm: str
) -> None:
    message = AnswerQuery(query_id="q", table="letters", format=form)  # type: ignore[arg-type]
    memory.world.queue.append(OutboundMessage("queries", message))
    asked = memory.instance.asked("q")
    file = asked.wait().files[1]
    local = memory.world.folder / "results" / query_prefix("q") / file.name
    body = local.read_bytes()
    local.chmod(0o644)
    if harm == "deleted":
        local.unlink()
    else:
        middle = len(body) // 2
        harmed = {"cut": body[:middle], "emptied": b"", "flipped": b"\xff" * len(body)}
        local.write_bytes(harmed[harm])
    with pytest.raises((CorruptDataError, NotFoundError)):
        asked.result().to_arrow()


def test_a_manifest_that_names_files_elsewhere_is_damaged(memory: InMemory) -> None:
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    end = QueryEnd(
        query="q",
        state="finished",
        question="x",
        ended_ms=1,
        format="arrow",
        schema=base64.b64encode(schema).decode(),
        files=(ResultFile("../p/part", 1, 1),),
    )
    END.save(memory.world.results, query_manifest_path(end.query), end)
    with pytest.raises(CorruptDataError, match="no file of it"):
        result_of(memory.world.services, end).to_arrow()


def test_an_error_that_is_no_class_of_ours_is_none_of_python(memory: InMemory) -> None:
    for name in ("", "KeyboardInterrupt", "os", "__builtins__"):
        query_id = f"q{len(name)}"
        end = QueryEnd(query=query_id, state="failed", question="", ended_ms=1, error=name)
        END.save(memory.world.results, query_manifest_path(end.query), end)
        with pytest.raises(InvariantError):
            memory.instance.asked(query_id).end()


@pytest.mark.parametrize("query_id", ["no/../x", "", "my query", 5])
def test_what_is_no_id_of_a_query_is_refused_in_words(memory: InMemory, query_id: str) -> None:
    with pytest.raises(InvalidRequestError, match="is no id of a query") as refused:
        memory.instance.asked(query_id)
    assert "dormouse queries list" in refused.value.hint


def test_a_query_of_which_nothing_is_known_is_not_found(memory: InMemory) -> None:
    instance: Instance = memory.instance
    with pytest.raises(NotFoundError, match="'q'"):
        instance.asked("q").record()
    with pytest.raises(NotFoundError, match="not there"):
        instance.asked("q").end()
    with pytest.raises(NotFoundError, match="'q'"):
        instance.asked("q").result()


def test_a_query_is_waited_for_while_somebody_may_have_its_message(
    memory: InMemory, handle: TableHandle
) -> None:
    memory.world.queue.append(
        OutboundMessage("queries", AnswerQuery(query_id="q", table="letters"))
    )
    memory.sleeper.asleep = True
    with pytest.raises(TimedOutError):
        memory.instance.asked("q").result()


def test_a_result_is_there_after_its_record(memory: InMemory, handle: TableHandle) -> None:
    handle.query(run="remote").close()
    (record,) = memory.instance.queries()
    del memory.world.tracker.kept[QUERY_RECORDS, record.job_id]
    assert memory.instance.asked(record.job_id).result().to_arrow().num_rows == 4
