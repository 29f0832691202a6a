"""The term index of a shard: what it has of each block, and that damage is found."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.arrow.words import terms_of
from dormouse.errors import CorruptDataError
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.shards import terms
from dormouse.shards.stored_index import TermIndexPlace
from dormouse.shards.terms import (
    TermIndexWriter,
    block_numbers,
    chunk_of,
    decode_chunk,
    decode_directory,
    term_digest,
    trigram_digest,
)

WORDS = ["alpha", "béta", "g", "7", "é" * 100 + "x", "z" * 5000]
COLUMNS = [
    (Field("m", Primitive.STRING, True, 3), "word"),
    (Field("n", Primitive.STRING, True, 9), "log"),
]


def texts(seed: int) -> list[str | None]:
    chosen = random.Random(seed)
    words = [*WORDS, *(f"{chosen.getrandbits(40):x}" for _ in range(300))]
    lines = [" ".join(chosen.choices(words, k=chosen.randrange(8))) for _ in range(200)]
    return [*lines, None, "10.0.0.1"]


def written(folder: Path, blocks: list[pa.Table]) -> tuple[bytes, TermIndexPlace]:
    writer = TermIndexWriter(COLUMNS, folder / "spill")  # type: ignore[arg-type]
    for number, rows in enumerate(blocks):
        writer.add(number, rows)
    sink = pa.BufferOutputStream()
    place = writer.write(sink)
    writer.discard()
    assert not (folder / "spill").exists()
    return sink.getvalue().to_pybytes(), place


def found(body: bytes, place: TermIndexPlace, digest: int) -> set[int]:
    directory = decode_directory(body[-place.directory_bytes :])
    low, high, _ = directory[chunk_of(digest, len(directory))]
    return decode_chunk(body[low:high])(digest)


@pytest.mark.parametrize("run_pairs", [terms.RUN_PAIRS, 2_000])
def test_each_term_and_each_part_of_one_is_found_in_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_pairs: int
) -> None:
    monkeypatch.setattr(terms, "RUN_PAIRS", run_pairs)
    monkeypatch.setattr(terms, "_chunk_pairs", lambda count: 500)
    blocks = [pa.table({"m": texts(n), "n": texts(n + 50)}) for n in range(12)]
    body, place = written(tmp_path, blocks)
    assert place.size_bytes == len(body)
    assert place.columns == ((3, "word"), (9, "log"))
    expected: dict[int, set[int]] = {}
    for number, rows in enumerate(blocks):
        for field, tokenizer in COLUMNS:
            for term in terms_of(rows[field.name].combine_chunks(), tokenizer).to_pylist():  # type: ignore[arg-type]
                expected.setdefault(term_digest(term, field.id), set()).add(number)
                for n in range(1, len(term) - 2):
                    digest = trigram_digest(term[n : n + 3], field.id)
                    if digest is not None:
                        expected.setdefault(digest, set()).add(number)
    assert len(expected) > 2_000
    assert {digest: found(body, place, digest) for digest in expected} == expected
    absent = [term_digest(f" absent{n}".encode(), 3) for n in range(100)]
    assert not any(found(body, place, digest) for digest in absent)


def test_an_index_of_no_words_has_none(tmp_path: Path) -> None:
    nothing = pa.table({"m": pa.array([None, "--"]), "n": pa.array([None, None], pa.string())})
    body, place = written(tmp_path, [nothing])
    assert not found(body, place, term_digest(b" a", 3))


def test_blocks_beyond_the_greatest_number_are_never_left_out(tmp_path: Path) -> None:
    writer = TermIndexWriter(COLUMNS[:1], tmp_path / "spill")  # type: ignore[arg-type]
    writer.add(70_000, pa.table({"m": ["alpha"]}))
    sink = pa.BufferOutputStream()
    place = writer.write(sink)
    digest = term_digest(b" alpha", 3)
    numbers = found(sink.getvalue().to_pybytes(), place, digest)
    assert 70_000 in block_numbers(numbers, 80_000)
    assert block_numbers({5}, 80_000) == {5}


def test_a_chunk_that_is_none_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="term index"):
        decode_chunk(b"\x05\0\0\0no chunk")
