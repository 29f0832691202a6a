"""Shards that Spark writes have the words of their rows in their term indexes, and no others."""

from __future__ import annotations

import pytest
from pyspark import SparkContext

from dormouse.features import compaction_steps
from dormouse.messages.stages import CompactionJob, IngestJob
from dormouse.shards import parquet
from dormouse.shards.crcs import index_of, term_section
from dormouse.shards.footer import read_metadata
from dormouse.shards.terms import blocks_in, chunk_of, chunk_spans, digests_in
from dormouse.state.sources import job_id_of
from dormouse.state.state import AssignJob
from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.compact import compact
from tests.support.spark_access import WorldAccess
from tests.support.world import World, letters, letters_file

TEXT = "".join(chr(0x4E00 + n) for n in range(400))


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_steps, "MIN_MERGE_TASK_BYTES", 4096)
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 16)


def words_found(world: World, table: Table, words: list[str]) -> dict[str, list[str]]:
    """Return which shards list each word."""
    found: dict[str, list[str]] = {word: [] for word in words}
    column = table.schema.field_named("note").id
    state = world.state(table)
    for shard in {ref.shard: state.shards[ref.shard] for ref in state.all_references()}.values():
        path = shard_path(table.id, shard.id)
        index = index_of(read_metadata(world.storage, path, shard.size_bytes), path)
        section = term_section(index)
        assert section is not None and index.terms is not None
        body = world.storage.get(path)[section.start : section.end]
        chunks = chunk_spans(index.terms)
        for word in words:
            ((digest,), _) = digests_in(word, "word", column)
            low, high = chunks[chunk_of(digest, len(chunks))]
            if blocks_in(body[low:high], digest):
                found[word].append(shard.id)
    return found


def test_bulk_imports_compactions_and_purges_of_spark_write_it(
    spark: SparkContext, world: World
) -> None:
    table = world.create(term_index="note", splits=[(TEXT[200],)])
    sources = tuple(
        world.sources.drop(f"letters/{n}.parquet", letters_file(letters(TEXT, at=1000 * n)))
        for n in range(3)
    )
    job = IngestJob(table.id, 0, job_id_of(sources), sources)
    bulk_import(spark, WorldAccess(world), world.services, job)
    words = [f"{TEXT[7]}7", f"{TEXT[7]}2007", f"{TEXT[399]}1399"]
    others = [f"{TEXT[8]}7", "8"]
    gone = others
    for purge in (None, f"note = '{words[0]}'"):
        if purge is not None:
            purge, gone = world.purge(table, purge), [*others, words[0]]
        for leaf in world.state(table).partitions.leaves():
            store = world.new_store(table)
            inputs = tuple(each.shard for each in store.current().references_in(leaf.id))
            run = world.ids.new()
            store.commit(AssignJob(run, leaf.id, inputs, purge_id=purge), generation=0)
            compact(spark, WorldAccess(world), world.services, CompactionJob(table.id, 0, run))
        found = words_found(world, table, words + others)
        assert {word: len(shards) for word, shards in found.items()} == {
            word: int(word not in gone) for word in words + others
        }
