"""Conditions on texts with a term index: few reads, all rows, and damage that is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dormouse.errors import DamagedShardError
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.query.result import QueryResult
from dormouse.schema.schema import parse_schema
from dormouse.shards import parquet, terms
from dormouse.shards.crcs import index_of, term_section
from dormouse.shards.footer import read_metadata
from dormouse.shards.reading import audit_shard
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from dormouse.tables.properties import Properties
from tests.support.damage import flipped, rewrite
from tests.support.tables import ShardTable

SCHEMA = parse_schema("k:long, m:string?", row_keys=["k"])
ROWS, GROUP_ROWS = 6_000, 100


def text(k: int) -> str:
    chosen = random.Random(k)
    return f"user {chosen.getrandbits(60):x} {chosen.getrandbits(60):x} w{k} at 10.0.{k // 256}.1"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardTable:
    """Return a table of two leaves, with a shard of 30 row groups in each."""
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr(terms, "WHOLE_BYTES", 1024)  # and chunks are read on their own
    made = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path, [(ROWS // 2,)])
    made.properties = Properties(term_index="m:log")
    made.add([{"k": k, "m": text(k)} for k in range(ROWS)])
    return made


def asked(table: ShardTable, where: str) -> QueryResult:
    return table.query(where=where, cache=Cache(1 << 20))


@pytest.mark.parametrize("k", [0, 77, 2_999, 3_000, 5_999])
def test_a_word_is_looked_up_in_one_round(table: ShardTable, k: int) -> None:
    found = asked(table, f"has(m, 'W{k}')")
    assert found.to_arrow().column("k").to_pylist() == [k]
    assert found.reads.row_groups <= 2  # a hash of another word may be the same
    assert found.reads.requests <= 6 + 2 * found.reads.row_groups  # an index here takes two
    nothing = asked(table, f"has(m, 'w{k}w')")
    assert not len(nothing.to_arrow())
    assert nothing.reads.requests <= 6


def test_of_whole_shards_only_the_columns_asked_for_are_read(table: ShardTable) -> None:
    where = "has(m, 'w77') OR has(m, 'w4077')"
    texts = table.query(where=where, columns=["m"], cache=Cache(1 << 20))
    assert texts.to_arrow().column("m").to_pylist() == [text(77), text(4077)]
    keys = table.query(where=where, columns=["k", "m"], cache=Cache(1 << 20))
    assert keys.to_arrow().column("k").to_pylist() == [77, 4077]
    assert texts.reads.size_bytes < keys.reads.size_bytes
    ranged = table.query(KeyRange((50,), (4_000,)), where=where, columns=["m"])
    assert ranged.to_arrow().column("m").to_pylist() == [text(77)]


def test_terms_that_are_apart_are_looked_for_together(table: ShardTable) -> None:
    where = "has(m, 'w5') OR has(m, 'w2900') OR m LIKE '%nothing%' OR has(m, '10.0.3.1')"
    numbers = asked(table, where).to_arrow().column("k").to_pylist()
    assert numbers == [5, *range(768, 1024), 2_900]
    both = asked(table, "has(m, 'w5') AND has(m, 'w2900')")
    assert not len(both.to_arrow())
    assert both.reads.row_groups == 0


def test_damage_is_found_where_it_is_read_and_by_audits(table: ShardTable, tmp_path: Path) -> None:
    shard_id = next(iter(table.state.shards))
    path = shard_path("table", shard_id)
    file = tmp_path / "data" / path
    body = file.read_bytes()
    metadata = read_metadata(table.storage, path, len(body))
    section = term_section(index_of(metadata, path))
    assert section is not None
    assert section.end - section.start > 20 * 1024
    ends = [*range(section.start, section.end, 2_000), section.end - 1]
    for at in ends:
        rewrite(file, flipped(body, at))
        with pytest.raises(DamagedShardError, match="the term index"):
            audit_shard(table.storage, path, len(body))
    raised = 0
    for at in ends:
        rewrite(file, flipped(body, at))
        try:
            found = asked(table, "has(m, 'w77') OR has(m, 'w1500') OR has(m, 'w2222')").to_arrow()
            assert found.column("k").to_pylist() == [77, 1500, 2222]
        except DamagedShardError as error:
            assert "term index" in str(error)
            raised += 1
    assert raised >= 1
    rewrite(file, flipped(body, section.end - 1))
    with pytest.raises(DamagedShardError, match="the term index"):
        asked(table, "has(m, 'w77')").to_arrow()
