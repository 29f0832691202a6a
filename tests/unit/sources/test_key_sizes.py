"""Row keys have a greatest size, and files with larger ones are refused with the place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.key_codec import KeyCodec
from dormouse.schema.schema import MAX_KEY_BYTES, Field, Schema
from dormouse.schema.types import Primitive

SCHEMA = Schema((Field("id", Primitive.LONG), Field("name", Primitive.STRING)))
LARGEST = "é" * ((MAX_KEY_BYTES - 8) // 2)


def lines(name: str) -> dict[str, str]:
    """The same three rows in each format, by the end of the file's name."""
    short = "a"
    return {
        "csv": f"id,name\n1,{short}\n2,{short}\n3,{name}\n",
        "jsonl": "".join(
            f'{{"id":{n},"name":"{text}"}}\n' for n, text in ((1, short), (2, short), (3, name))
        ),
    }


def rows_of(tmp_path: Path, ending: str, name: str) -> int:
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table({"id": [1, 2, 3], "name": ["a", "a", name]}), path)
    else:
        path.write_text(lines(name)[ending])
    return sum(batch.num_rows for batch in read_source(path, path.name, SCHEMA))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_largest_key_is_taken_and_a_larger_one_refused_with_its_place(
    tmp_path: Path, ending: str
) -> None:
    assert rows_of(tmp_path, ending, LARGEST) == 3
    with pytest.raises(RefusedSourceError, match="row 3, column 'name'") as refused:
        rows_of(tmp_path, ending, LARGEST + "b")
    assert "é" not in refused.value.explanation
    assert "value column" in refused.value.hint


def test_partitions_cannot_meet_at_a_key_that_no_row_can_have() -> None:
    points = [(3, LARGEST)], [(3, LARGEST + "b")]
    assert KeyCodec(SCHEMA).split_points_from_json(points[0]) == points[0]
    with pytest.raises(InvalidRequestError, match="split point 1 .* takes 4,097 bytes"):
        KeyCodec(SCHEMA).split_points_from_json(points[1])
