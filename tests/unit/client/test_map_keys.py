"""Maps come in with different keys, by every way in."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import RefusedSourceError


@pytest.mark.parametrize("door", ["frame", "row", "parquet", "json", "csv"])
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_map_with_a_key_twice_is_refused_as_engines_could_not_read_the_column(
    tmp_path: Path, door: str, is_nested: bool
) -> None:
    inner = pa.map_(pa.string(), pa.int64())
    kind = pa.list_(pa.struct([("m", inner)])) if is_nested else inner
    pairs = [("a", 1), ("b", 1), ("a", 2)]
    value = [None, {"m": [("a", 1)]}, {"m": pairs}] if is_nested else pairs
    frame = pa.table({"id": [1, 2], "x": pa.array([None, value], kind)}).slice(1)
    text = json.dumps(value)
    with Instance.open(tmp_path / "mice", background=False) as mice:
        table = mice.create_table("t", like=frame, row_keys=["id"])
        files = {"parquet": tmp_path / "f.parquet", "json": tmp_path / "f.jsonl"}
        files["csv"] = tmp_path / "f.csv"
        pq.write_table(frame, files["parquet"])
        files["json"].write_text(f'{{"id": 2, "x": {text}}}\n')
        files["csv"].write_text('id,x\n2,"' + text.replace('"', '""') + '"\n')
        with pytest.raises(RefusedSourceError, match="row 1|line [12]") as refused:
            if door == "row":
                with table.writer() as writer:
                    writer.write({"id": 2, "x": value})
            else:
                table.ingest(frame if door == "frame" else files[door]).wait()
        assert "a map has a key twice" in refused.value.explanation
        assert table.count() == 0
