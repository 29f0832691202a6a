"""Exports of values of every type, cut anywhere: what comes back is what a query gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema, json_schema
from dormouse.features.export import ExportManifest, load_manifest
from dormouse.features.export_rows import export_rows
from dormouse.key_codec import KeyCodec
from dormouse.keys import KeyRange
from dormouse.messages.stages import ExportTask
from dormouse.schema.schema import Schema
from dormouse.stored.paths import MANIFEST
from dormouse.tables.table import Table
from tests.support.batches import Row, ranges, row_key_of, rows_of, schemas
from tests.support.depth import examples
from tests.support.world import World
from tests.unit.features.test_every_type import compacting, drop, fits, found, new_world
from tests.unit.query.test_oracle import assert_same_rows


def exported(world: World, table: Table, **asked: Any) -> ExportManifest:
    world.export(table, to="out", **asked)
    while world.queue:
        message = world.queue.popleft().message
        assert isinstance(message, ExportTask)
        sent = export_rows(world.services, message)
        assert not sent
    manifest = load_manifest(world.results, "out")
    assert manifest is not None
    return manifest


def read(world: World, manifest: ExportManifest, schema: Schema) -> list[Row]:
    folder = world.folder / "results" / "out"
    tables = [pq.read_table(folder / file.name) for file in manifest.files]
    whole = pa.concat_tables([json_schema(arrow_schema(schema)).empty_table(), *tables])
    return whole.to_pylist()


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.data())
def test_an_export_gives_what_a_query_gives_and_can_be_ingested_again(
    schema: Schema, data: st.DataObject
) -> None:
    files = [data.draw(rows_of(schema, 20)) for _ in range(2)]
    keys = sorted({row_key_of(row, schema) for rows in files for row in rows})
    splits = data.draw(st.lists(st.sampled_from(keys), unique=True).map(sorted)) if keys else []
    file_bytes = data.draw(st.sampled_from([1, 10**9]))
    group_rows = data.draw(st.integers(1, 5))
    with new_world() as world, pytest.MonkeyPatch.context() as patch:
        patch.setattr("dormouse.files.results.ROW_GROUP_ROWS", group_rows)
        patch.setattr("dormouse.features.export_rows.FILE_BYTES", file_bytes)
        table = compacting(world, schema, splits)
        for number, rows in enumerate(files):
            if rows:
                drop(world, str(number), rows, schema)
        world.settle()
        manifest = exported(world, table)
        rows = found(world, table).to_pylist()
        assert_same_rows(read(world, manifest, table.schema), rows, schema)
        again = world.create("again", Schema.from_json(manifest.schema))
        for file in manifest.files:
            body = (world.folder / "results" / "out" / file.name).read_bytes()
            world.drop(f"again/{file.name}", body)
        body = (world.folder / "results" / "out" / MANIFEST).read_bytes()
        manifest_source = world.drop(f"again/{MANIFEST}", body)
        world.settle()
        assert_same_rows(found(world, again).to_pylist(), rows, schema)
        assert world.tracker.get(again.id, manifest_source.id) is None, "it is no file of rows"


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.data())
def test_ranges_choose_the_rows_that_a_query_gives(schema: Schema, data: st.DataObject) -> None:
    rows = data.draw(rows_of(schema, 20))
    fitting = ranges(schema).filter(
        lambda span: (
            all(not key or fits(key, schema) for key in (span.min, span.max or ()))
            and span.max != ()
            and not span.is_empty()
        )
    )
    wanted = data.draw(st.lists(fitting, min_size=1, max_size=3))
    with new_world() as world, pytest.MonkeyPatch.context() as patch:
        patch.setattr("dormouse.features.export_rows.FILE_BYTES", 1)
        table = compacting(world, schema)
        if rows:
            drop(world, "0", rows, schema)
        asked = [_pair(schema, span) for span in wanted]
        manifest = exported(world, table, ranges=tuple(asked))
        expected = found(world, table, *wanted).to_pylist()
        assert_same_rows(read(world, manifest, table.schema), expected, schema)


def _pair(schema: Schema, span: KeyRange) -> tuple[object, object]:
    high = None if span.max is None else KeyCodec(schema).to_json(span.max)
    return KeyCodec(schema).to_json(span.min) or None, high
