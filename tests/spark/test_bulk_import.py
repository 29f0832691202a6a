"""Bulk imports: rows reach their leaves, whole files or none of them, and count once."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

from dormouse.arrow.types import arrow_schema
from dormouse.errors import InvariantError, UnavailableError
from dormouse.features import compaction_steps
from dormouse.features.compaction import compact
from dormouse.features.ingest import ingest
from dormouse.features.rebuild import preview_rebuild
from dormouse.keys import encode_key
from dormouse.messages.stages import CompactionJob, IngestJob
from dormouse.schema.schema import parse_schema
from dormouse.schema.types import DecimalType, from_decimal_count
from dormouse.shards.footer import read_footer
from dormouse.state.sources import Source, job_id_of
from dormouse.state.state import AssignJob, SplitPartition
from dormouse.state.versions import Provenance
from dormouse.stored.paths import REJECTED, RUN_MARKERS, data_prefix
from dormouse.tables.table import Table
from dormouse_spark import bulk_import as module
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.importing import ReadResult
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.spark_access import WorldAccess
from tests.support.world import Crash, World, letters, letters_file

ROWS = "thequickbrownfoxjumpsoverthelazydog"


def drop(world: World, *texts: str) -> tuple[Source, ...]:
    """Drop a file of each text's letters, without notifications."""
    return tuple(
        world.sources.drop(f"letters/{n}.parquet", letters_file(letters(text, at=1000 * n)))
        for n, text in enumerate(texts)
    )


def job_of(table: Table, sources: tuple[Source, ...], generation: int = 0) -> IngestJob:
    return IngestJob(table.id, generation, job_id_of(sources), sources)


def run(spark: SparkContext, world: World, table: Table, *sources: Source) -> None:
    job = job_of(table, sources)
    bulk_import(spark, WorldAccess(world), world.services, job)


def provenances(world: World, table: Table) -> list[Provenance]:
    stored = world.storage.list(data_prefix(table.id))
    footers = (read_footer(world.storage, o.path, o.size_bytes) for o in stored)
    return sorted((footer.provenance for footer in footers), key=lambda o: o.number)


def test_each_row_gets_to_the_leaf_that_holds_its_key(spark: SparkContext, world: World) -> None:
    table = world.create(splits=[("a",), ("g",), ("o",), ("p",)])
    random = Random(7)
    texts = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz0", k=300)) for _ in range(5)]
    run(spark, world, table, *drop(world, *texts))
    assert world.names(table) == "".join(sorted("".join(texts)))
    state = world.state(table)
    expected = Counter(
        state.partitions.leaf_containing(encode_key((letter,))).id
        for text in texts
        for letter in text
    )
    found = {ref.partition: ref.rows for ref in state.all_references()}
    assert found == expected, "one shard for each leaf, with just its rows"
    assert all(ref.exact for ref in state.all_references())


def test_a_leaf_with_most_rows_is_written_by_many_tasks_in_key_order(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_steps, "MIN_TASK_BYTES", 1)
    table = world.create(splits=[("b",), ("c",), ("d",)], bulk_import_min_leaf_partitions=1)
    text = "abcd" + "".join(chr(0x4E00 + i % 500) for i in range(2000))
    run(spark, world, table, *drop(world, text))
    assert world.names(table) == "".join(sorted(text))
    state = world.state(table)
    last = list(state.partitions.leaves())[-1]
    rows = [state.shards[ref.shard].rows for ref in state.references_in(last.id)]
    assert len(rows) >= 3
    assert max(rows) <= 2 * len(text) / 4
    spans = sorted((shard.min_key, shard.max_key) for shard in state.shards.values())
    assert all(end < start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    numbers = [provenance.number for provenance in provenances(world, table)]
    assert len(set(numbers)) == len(numbers)
    assert not any(provenance.last for provenance in provenances(world, table))


def test_too_few_leaves_are_split_first_at_the_medians_of_what_comes(
    spark: SparkContext, world: World
) -> None:
    table = world.create(bulk_import_min_leaf_partitions=8)
    text = "".join(chr(0x4E00 + i % 2000) for i in range(20_000))
    before = world.state(table).version
    run(spark, world, table, *drop(world, text[:12_000], text[12_000:]))
    state = world.state(table)
    assert state.version == before + 2, "one commit for the tree and one for the rows"
    rows = [state.rows_in(leaf.id) for leaf in state.partitions.leaves()]
    assert len(rows) == 8
    assert max(rows) <= 1.3 * 20_000 / 8
    assert state.rows == 20_000


def test_leaves_that_others_split_meanwhile_are_counted_and_not_split_again(
    spark: SparkContext, world: World
) -> None:
    table = world.create(bulk_import_min_leaf_partitions=2)
    text = "".join(chr(0x4E00 + i % 2000) for i in range(3_000))
    split = SplitPartition("root", encode_key(("中",)))
    world.before_next_commit(lambda: world.new_store(table).commit(split, generation=0))
    run(spark, world, table, *drop(world, text))
    state = world.state(table)
    assert [leaf.range.min for leaf in state.partitions.leaves()] == [(), ("中",)]
    assert state.rows == 3_000


def test_a_leaf_split_while_the_job_runs_passes_its_rows_on(
    spark: SparkContext, world: World
) -> None:
    table = world.create()
    split = SplitPartition("root", encode_key(("m",)))
    world.before_next_commit(lambda: world.new_store(table).commit(split, generation=0))
    run(spark, world, table, *drop(world, ROWS))
    assert world.names(table) == "".join(sorted(ROWS))
    assert len({ref.partition for ref in world.state(table).all_references()}) == 2


def test_bad_files_are_refused_by_name_and_the_others_imported(
    spark: SparkContext, world: World
) -> None:
    table = world.create()
    good = drop(world, "ab", "cd")
    torn = world.sources.drop("letters/torn.parquet", letters_file(letters(ROWS))[:-200])
    late = world.sources.drop("letters/late.csv", b"letter,at,note\ne,1,x\nf,never,y\n")
    gone = Source("ingest", "letters/gone.parquet", "0", 1)
    run(spark, world, table, *good, torn, late, gone)
    assert world.names(table) == "abcd"
    refused = {r.subject: r.reason for r in world.tracker.records(table.id) if r.state == "refused"}
    assert refused.keys() == {torn.key, late.key, gone.key}
    assert "line 3, column 'at'" in refused[late.key]
    state = world.state(table)
    assert [s.id in state.sources for s in (good[0], torn)] == [True, False]


def test_rows_that_cannot_be_read_are_left_out_and_kept_beside(
    spark: SparkContext, world: World
) -> None:
    table = world.create(splits=[("b",)], ingest_on_error="skip")
    bad = b"letter,at,note\na,1,x\n1,x,2\nb,2,\n,3,\nc,4\n"
    job = job_of(
        table,
        (
            *(
                world.sources.drop(f"letters/{n}.csv", bad.replace(b"2,", b"%d," % n))
                for n in (2, 5)
            ),
            world.sources.drop("letters/on-error=refuse/3.csv", bad),
            world.sources.drop("letters/4.csv", b"letter,at,note\nc,y,\n"),
        ),
    )
    for _ in range(2):  # delivered twice
        bulk_import(spark, WorldAccess(world), world.services, job)
    assert world.names(table) == "aabb"
    stored = world.storage.list(REJECTED.prefix(table.id))
    lines = [
        json.loads(row) for each in stored for row in world.storage.get(each.path).splitlines()
    ]
    assert Counter((line["file"], line["line"]) for line in lines) == Counter(
        (f"letters/{n}.csv", at) for n in (2, 5) for at in (3, 5, 6)
    )
    record = world.tracker.get(table.id, job.job_id)
    assert record is not None
    assert (record.rows_read, record.rows) == (10, 4)
    assert all(each.path in record.reason for each in stored)
    refused = {r.subject: r.reason for r in world.tracker.records(table.id) if r.state == "refused"}
    assert refused.keys() == {"letters/on-error=refuse/3.csv", "letters/4.csv"}
    assert "none of the 1 rows" in refused["letters/4.csv"]


def test_csv_files_are_read_as_the_table_says(spark: SparkContext, world: World) -> None:
    table = world.create(csv_separator=";", csv_header="no", csv_null="-")
    run(spark, world, table, world.sources.drop("letters/1.csv", b"a;1;x,y\nb;2;-\n"))
    assert [tuple(row.values()) for row in world.rows(table)] == [("a", 1, "x,y"), ("b", 2, None)]


def test_nothing_good_and_no_rows_change_nothing_but_what_is_known_of_sources(
    spark: SparkContext, world: World
) -> None:
    table = world.create()
    bad = world.sources.drop("letters/bad.parquet", b"PAR1 and no more")
    run(spark, world, table, bad)
    (empty,) = drop(world, "")
    run(spark, world, table, empty)
    state = world.state(table)
    assert (state.rows, len(state.shards)) == (0, 0)
    assert empty.id in state.sources
    assert bad.id not in state.sources


def test_a_job_run_again_adds_nothing(spark: SparkContext, world: World) -> None:
    table = world.create(splits=[("m",)])
    sources = drop(world, ROWS, "abc")
    for _ in range(2):
        run(spark, world, table, *sources)
    assert world.names(table) == "".join(sorted(ROWS + "abc"))
    assert len(world.shard_objects(table)) == len(world.state(table).shards)


def test_a_job_that_died_before_its_commit_leaves_what_a_rebuild_and_the_audit_see_through(
    spark: SparkContext, world: World
) -> None:
    table = world.create(splits=[("m",)])
    sources = drop(world, ROWS)
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        run(spark, world, table, *sources)
    assert preview_rebuild(world.services, table).state.rows == len(ROWS)
    run(spark, world, table, *sources)
    assert world.names(table) == "".join(sorted(ROWS))
    assert preview_rebuild(world.services, table).state.rows == len(ROWS)
    assert len(world.shard_objects(table)) == 4
    world.age_objects(seconds=0)
    world.clock.advance(seconds=8 * 24 * 3600)
    world.sweep(audit=True)
    assert world.shard_objects(table) == set(world.state(table).shards)
    assert len(list(world.storage.list(RUN_MARKERS.prefix(table.id)))) == 1
    assert preview_rebuild(world.services, table).state.rows == len(ROWS)


def test_sources_that_others_ingest_meanwhile_are_left_out_and_the_shards_left_to_the_audit(
    spark: SparkContext, world: World
) -> None:
    table = world.create()
    sources = drop(world, "abc", "xyz")
    other = job_of(table, sources[:1])
    world.before_next_commit(lambda: ingest(world.services, other))
    run(spark, world, table, *sources)
    assert world.names(table) == "abcxyz"
    left = world.shard_objects(table) - set(world.state(table).shards)
    assert len(left) == 1, "an ingest deletes no shard, nor one of a commit that was rejected"
    assert preview_rebuild(world.services, table).state.rows == len("abcxyz")
    world.age_objects(seconds=table.properties.orphan_age_seconds - 60)
    world.sweep(audit=True)
    assert left < world.shard_objects(table), "it may be of a commit yet to come"
    world.age_objects(seconds=table.properties.orphan_age_seconds + 60)
    world.sweep(audit=True)
    assert world.shard_objects(table) == set(world.state(table).shards)
    assert len(list(world.storage.list(RUN_MARKERS.prefix(table.id)))) == 1


def test_the_rules_of_the_table_hold(spark: SparkContext, world: World) -> None:
    table = world.create(splits=[("m",)], filters="where(letter > 'd')", aggregations="last(note)")
    run(spark, world, table, *drop(world, "aezez", "zzz"))
    assert [(r["letter"], r["at"]) for r in world.rows(table)] == [("e", 3), ("z", 1002)]


def test_columns_that_the_table_names_get_bloom_filters(spark: SparkContext, world: World) -> None:
    table = world.create(bloom_columns="note")
    run(spark, world, table, *drop(world, ROWS))
    (stored,) = world.storage.list(data_prefix(table.id))
    group = pq.read_metadata(world.folder / "data" / stored.path).row_group(0)
    offsets = [each["bloom_filter_offset"] for each in group.to_dict()["columns"]]
    assert [offset is not None for offset in offsets] == [False, False, True]


def test_a_rebuild_finds_the_rows_and_sources_of_an_import_once_whatever_was_merged_since(
    spark: SparkContext, world: World
) -> None:
    table = world.create(splits=[("m",)])
    sources = drop(world, ROWS, "abc")
    run(spark, world, table, *sources)
    store = world.new_store(table)
    left = next(store.current().partitions.leaves()).id
    (merged,) = store.current().references_in(left)
    store.commit(AssignJob("job", left, (merged.shard,)), generation=0)
    world.queue += compact(world.services, CompactionJob(table.id, 0, "job"))
    for _ in range(2):  # before what was merged is collected, and after
        again = preview_rebuild(world.services, table).state
        assert again.rows == len(ROWS) + 3
        assert set(again.sources) == {source.id for source in sources}
        world.settle()
        world.clock.advance(seconds=3600)


def test_values_of_every_type_arrive_as_they_were(spark: SparkContext, world: World) -> None:
    rows = [row_of_every_type(n) for n in range(200)]
    split = "1969-12-31T00:00:00.000003Z"
    table = world.create("every", EVERY_TYPE, splits=[(split, "/w=="), (split,)][1:])
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(EVERY_TYPE)), sink)
    run(spark, world, table, world.sources.drop("every/1.parquet", sink.getvalue()))
    found = world.rows(table)
    assert found == sorted(rows, key=lambda row: (row["t"], row["b"], row["i"]))  # type: ignore[index]
    assert len(world.state(table).shards) == 2


def test_rows_with_decimal_keys_get_to_their_leaves(spark: SparkContext, world: World) -> None:
    schema = parse_schema("id: decimal(38,2)", ["id"])
    table = world.create("prices", schema, splits=[("-92233720368547758.09",), (0,), (10**20,)])
    counts = [-(10**38) + 1, -(2**63) - 1, -(2**63), -1, 0, 150, 2**63, 10**22, 10**38 - 1]
    rows = [{"id": from_decimal_count(n, DecimalType(38, 2))} for n in counts]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows[::-1], arrow_schema(schema)), sink)
    run(spark, world, table, world.sources.drop("prices/1.parquet", sink.getvalue()))
    assert world.rows(table) == rows
    assert sorted(ref.rows for ref in world.state(table).all_references()) == [1, 2, 3, 3]


@pytest.mark.parametrize("lost", ["the file is gone", "reading fails"])
def test_rows_that_were_lost_when_files_had_to_be_read_again_are_missed_and_nothing_is_committed(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    table = world.create(splits=[("m",)])
    sources = drop(world, ROWS, "abc")
    extended = module._extended

    def lose(*given: Any) -> Any:
        if lost == "the file is gone":
            del world.sources.objects[sources[1].key]
        else:
            patch.setattr(module, "read_sources", _broken)
        return extended(*given)

    with monkeypatch.context() as patch:
        patch.setattr("pyspark.RDD.persist", lambda rdd, level: rdd)  # an executor was lost
        patch.setattr(module, "_extended", lose)
        with pytest.raises(UnavailableError, match="nothing was committed"):
            run(spark, world, table, *sources)
    assert world.names(table) == ""
    assert not world.state(table).sources
    assert preview_rebuild(world.services, table).state.rows == 0


def test_rows_are_read_again_where_the_file_of_sorted_rows_is_not(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create(splits=[("m",)])
    sources = drop(world, ROWS, "abc")
    collect = module.collect_results

    def lose(tasks: Any) -> Any:
        results = collect(tasks)
        for one in results:
            if isinstance(one, ReadResult):
                one.path.unlink()
        return results

    monkeypatch.setattr(module, "collect_results", lose)
    run(spark, world, table, *sources)
    assert world.names(table) == "".join(sorted(ROWS + "abc"))


def test_no_sorted_rows_are_left_on_the_executors(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create(splits=[("m",)])
    paths: list[Path] = []
    collect = module.collect_results

    def note(tasks: Any) -> Any:
        results = collect(tasks)
        new = [one.path for one in results if isinstance(one, ReadResult)]
        assert all(path.exists() for path in new)
        paths.extend(new)
        return results

    monkeypatch.setattr(module, "collect_results", note)
    run(spark, world, table, *drop(world, ROWS, "abc"))
    assert paths and not [path for path in paths if path.exists()]


def _broken(*_: object) -> Any:
    raise InvariantError("what was read is no good")
