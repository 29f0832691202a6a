"""The term index of a shard: what it has of each block, and that damage is found."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow import documents
from dormouse.arrow.documents import matching, parts_of
from dormouse.arrow.types import arrow_schema
from dormouse.errors import CorruptDataError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards import terms
from dormouse.shards.crcs import decode_entry
from dormouse.shards.footer import estimated_index_bytes
from dormouse.shards.parquet import ParquetFileWriter
from dormouse.shards.stored_index import TermIndexPlace, find_entry
from dormouse.shards.terms import (
    TermIndexWriter,
    block_numbers,
    blocks_in,
    chunk_of,
    chunk_spans,
    digests_in,
)
from dormouse.sql.conditions import has_words
from dormouse.tables.indexing import TermColumns, Tokenizer
from tests.support.damage import flipped
from tests.support.depth import examples

WORDS = ["alpha", "béta", "g", "7", "12345678", "123456789", "é" * 100 + "x", "z" * 5000]
COLUMNS: list[tuple[Field, Tokenizer]] = [
    (Field("m", Primitive.STRING, True, 3), "word"),
    (Field("n", Primitive.STRING, True, 9), "log"),
]


def texts(seed: int) -> list[str | None]:
    chosen = random.Random(seed)
    some = [*WORDS, *(f"{chosen.getrandbits(40):x}" for _ in range(300))]
    lines = [" ".join(chosen.choices(some, k=chosen.randrange(8))) for _ in range(200)]
    return [*lines, None, "at 10.0.0.1:80,1.2.3.4.5", "x10.0.0.2 1234.1.1.1 1..2.3.4"]


def digest(numbers: list[bytes], kind: int, column: int) -> int:
    """Return a hash as docs/shard-format.md has it."""
    base = 0x9E3779B97F4A7C15
    total = (3 * column + kind) * base**5
    for power, number in enumerate(numbers, 1):
        total += int.from_bytes(number, "little") * base**power
    return total % 2**64 >> 32


def word_digest(word: str, column: int) -> int:
    body = word.encode()
    return digest([body[:8]] if len(body) <= 8 else [body[:8], body[-8:]], 0, column)


def described(text: str, tokenizer: Tokenizer, column: int) -> Iterator[int]:
    """Yield the hashes of a text, of which all letters are small, as docs/shard-format.md has it:
    cut one by one.
    """
    for word in re.findall(r"[0-9a-zé]+", text):
        yield word_digest(word, column)
        body = word.encode()
        for n in range(len(body) - 2):
            if min(body[n : n + 3]) >= 0x40:
                yield digest([body[n : n + 3]], 2, column)
    if tokenizer == "log":
        for address in re.findall(
            r"(?<![0-9a-zé])(?=((?:\d{1,3}\.){3}\d{1,3})(?![0-9a-zé]))", text
        ):
            yield digest([part.encode() for part in address.split(".")], 1, column)


def written(folder: Path, blocks: list[pa.Table]) -> tuple[bytes, TermIndexPlace]:
    writer = TermIndexWriter(COLUMNS, folder / "spill")
    for number, rows in enumerate(blocks):
        writer.add(number, rows)
    sink = pa.BufferOutputStream()
    place = writer.write(sink)
    writer.discard()
    assert not (folder / "spill").exists()
    return sink.getvalue().to_pybytes(), place


def found(body: bytes, place: TermIndexPlace, digest: int) -> set[int]:
    low, high = chunk_spans(place)[chunk_of(digest, place.chunks)]
    return blocks_in(body[low:high], digest)


@pytest.mark.parametrize("at_once", [None, 5])
def test_each_term_and_each_part_of_one_is_found_in_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int | None
) -> None:
    monkeypatch.setattr(terms, "_chunk_pairs", lambda count: 500)
    if at_once:
        monkeypatch.setattr(terms, "RUN_PAIRS", 2_000)
        monkeypatch.setattr(documents, "_AT_ONCE", 20 * at_once)
        monkeypatch.setattr(documents, "_PIECES_AT_ONCE", at_once)
    blocks = [pa.table({"m": texts(n), "n": texts(n + 50)}) for n in range(12)]
    body, place = written(tmp_path, blocks)
    assert place.size_bytes == len(body)
    assert place.columns == ((3, "word"), (9, "log"))
    expected: dict[int, set[int]] = {}
    for number, rows in enumerate(blocks):
        for field, tokenizer in COLUMNS:
            for text in filter(None, rows[field.name].to_pylist()):
                for each in described(text, tokenizer, field.id):
                    expected.setdefault(each, set()).add(number)
    assert len(expected) > 2_000
    some = random.Random(at_once).sample(sorted(expected), 500)
    assert [found(body, place, digest) for digest in some] == [expected[each] for each in some]
    absent = [word_digest(f"absent{n}", 3) for n in range(100)]
    assert not any(found(body, place, digest) for digest in absent)


def test_terms_are_words_and_addresses() -> None:
    def terms_in(text: str, tokenizer: Tokenizer) -> set[int]:
        return set(digests_in(text, tokenizer, 3)[0])

    text = "1.2.3.4.5 on 10.0.0.1, x10.0.0.2y 1234.1.1.1 a..1.1 1.1 é8.8.8.8"
    plain = terms_in(text, "word")
    assert plain == {word_digest(word, 3) for word in re.findall(r"[0-9a-zé]+", text)}
    addresses = [["1", "2", "3", "4"], ["2", "3", "4", "5"], ["10", "0", "0", "1"]]
    assert terms_in(text, "log") - plain == {
        digest([part.encode() for part in each], 1, 3) for each in addresses
    }
    assert digests_in("", "log", 3) == digests_in(" -. ", "log", 3) == ([], [])


def test_the_longest_terms_of_a_text_come_first() -> None:
    found = digests_in("a bcd 1.1.1.1 ef ghijklmnopqrstuvw", "log", 3)[0]
    of_words = [word_digest(word, 3) for word in ("ghijklmnopqrstuvw", "bcd", "ef", "a", "1")]
    assert found == [of_words[0], digest([b"1"] * 4, 1, 3), *of_words[1:3], *found[4:]]
    assert set(found[4:]) == set(of_words[3:])


PARTS = ["ab", "B", "1", "22", ".", " ", "-", "é", "ß", "\u00a0", "“", "1.2.3.4", "\n", "İ", "ſ"]


@settings(deadline=None, max_examples=examples(300))
@given(
    st.lists(st.sampled_from(PARTS) | st.characters(codec="utf-8"), min_size=1, max_size=12),
    st.sampled_from(["word", "log"]),
    st.integers(0, 20),
    st.integers(1, 20),
    st.sampled_from([str.upper, str.lower, str]),
)
def test_the_terms_of_what_is_found_are_terms_of_the_text(
    pieces: list[str], tokenizer: Tokenizer, start: int, length: int, cased: type[str]
) -> None:
    text = "".join(pieces)
    start %= len(text)
    terms, parts = map(set, digests_in(text, tokenizer, 3))
    wanted = cased(text[start : start + length])
    if has_words(wanted) and matching(pa.array([text]), wanted)[0].as_py():
        assert set(digests_in(wanted, tokenizer, 3)[0]) <= terms
    piece = text[start : start + length]
    whole, rest = parts_of(piece, is_begun=start == 0, is_ended=start + length >= len(text))
    assert set(digests_in(whole, tokenizer, 3)[0]) <= terms
    assert {each for some in rest for each in digests_in(some, tokenizer, 3)[1]} <= parts


def test_an_index_of_no_words_has_none(tmp_path: Path) -> None:
    for nothing in ([None, "--"], [None, None], ["", ""]):
        rows = pa.table({name: pa.array(nothing, pa.string()) for name in ("m", "n")})
        body, place = written(tmp_path, [rows])
        assert not found(body, place, word_digest("a", 3))


def test_what_fails_beside_the_writer_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(terms, "cut", fails)
    writer = TermIndexWriter(COLUMNS, tmp_path / "spill")
    writer.add(0, pa.table({"m": ["a"], "n": ["b"]}))
    with pytest.raises(OSError, match="no space"):
        writer.write(pa.BufferOutputStream())
    writer.discard()


def test_blocks_beyond_the_greatest_number_are_never_left_out(tmp_path: Path) -> None:
    writer = TermIndexWriter(COLUMNS[:1], tmp_path / "spill")
    writer.add(70_000, pa.table({"m": ["alpha"]}))
    sink = pa.BufferOutputStream()
    place = writer.write(sink)
    writer.discard()
    numbers = found(sink.getvalue().to_pybytes(), place, word_digest("alpha", 3))
    assert 70_000 in block_numbers(numbers, 80_000)
    assert block_numbers({5}, 80_000) == {5}


@pytest.mark.parametrize(("columns", "most"), [((), 8192), ((("m", "word"),), 6144)])
def test_what_words_are_looked_for_in_is_shorter_and_its_index_is_read_at_once(
    tmp_path: Path, columns: TermColumns, most: int
) -> None:
    schema = Schema((Field("k", Primitive.LONG),), (), (Field("m", Primitive.STRING, id=2),))
    count = 60_000
    lines = pa.array([f"line of {n % 7} words and {n // 9}" for n in range(count)])
    batch = pa.RecordBatch.from_pydict({"k": pa.array(range(count)), "m": lines})
    file = ParquetFileWriter(tmp_path / "file", schema, term_columns=columns)
    file.write(batch.cast(arrow_schema(schema)))
    file.close({}, "t", "s")
    body = (tmp_path / "file").read_bytes()
    from_end = len(body) - body.rfind(b"dormouse.index")
    assert max(decode_entry(find_entry(body), "file").rows) == most
    assert from_end < estimated_index_bytes(len(body), 2, count)


def test_damage_of_any_byte_of_a_chunk_is_found(tmp_path: Path) -> None:
    body, place = written(tmp_path, [pa.table({"m": texts(1), "n": texts(2)})])
    for at in range(len(body)):
        with pytest.raises(CorruptDataError, match="term index"):
            blocks_in(flipped(body, at), 7)
    with pytest.raises(CorruptDataError, match="term index"):
        blocks_in(body[:5], 7)
    assert place.chunks == 1
