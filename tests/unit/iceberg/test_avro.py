"""Avro containers are read back as they were written, are the same each time, and damage shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.iceberg import avro
from dormouse.iceberg.avro import entry_schema, manifest_schema

RECORDS: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "flag", "type": "boolean"},
        {"name": "many", "type": {"type": "array", "items": "long"}},
    ],
}
int64 = st.integers(-(2**63), 2**63 - 1)
records = st.lists(
    st.fixed_dictionaries(
        {
            "number": int64,
            "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "raw": st.binary(),
            "flag": st.booleans(),
            "many": st.lists(int64),
        }
    )
)
metadata = st.dictionaries(st.sampled_from(["a", "b", "ü"]), st.text("xyz"))


@given(records, metadata)
def test_records_are_read_back(rows: list[dict[str, Any]], header: dict[str, str]) -> None:
    data = avro.write_container(RECORDS, rows, header)
    assert avro.write_container(RECORDS, rows, header) == data
    found, read = avro.read_container(data)
    assert read == rows
    assert {key: found[key] for key in header} == header


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("make", [entry_schema, manifest_schema])
def test_every_optional_field_is_in_the_schema_with_null_as_its_default(
    make: Any, version: int
) -> None:
    """A reader fails where an optional field is missing from the schema."""
    numbers = _field_ids(make(version))
    expected = {
        (entry_schema, 2): {143, 140, 137, 131, 132, 135, 108, 128},
        (entry_schema, 3): {142, 143, 144, 145, 137},
        (manifest_schema, 2): {507, 519, 514},
        (manifest_schema, 3): {507, 519, 520},
    }
    assert expected[make, version] <= numbers


def _field_ids(schema: Any) -> set[int]:
    if not isinstance(schema, dict):
        return set().union(*map(_field_ids, schema)) if isinstance(schema, list) else set()
    found: set[int] = set()
    for field in schema.get("fields", ()):
        is_optional = isinstance(field["type"], list)
        assert is_optional == ("default" in field), field["name"]
        found |= {field["field-id"]} | _field_ids(field["type"])
    return found | _field_ids(schema.get("items")) | _field_ids(schema.get("type"))


ONE_ROW = [{"number": 1, "text": "x" * 50, "raw": b"", "flag": True, "many": [1, 2]}]


def test_a_file_that_was_cut_off_is_refused() -> None:
    good = avro.write_container(RECORDS, ONE_ROW, {})
    for length in range(len(good)):
        with pytest.raises(CorruptDataError):
            avro.read_container(good[:length])


@pytest.mark.parametrize("rows", [ONE_ROW, []])
def test_a_file_with_any_flipped_bit_is_refused(rows: list[dict[str, Any]]) -> None:
    good = avro.write_container(RECORDS, rows, {"schema": "of the table"})
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptDataError):
            avro.read_container(bytes(damaged))


def test_a_file_whose_marker_is_a_digest_of_the_header_alone_is_refused() -> None:
    empty, data = (avro.write_container(RECORDS, rows, {}) for rows in ([], ONE_ROW))
    with pytest.raises(CorruptDataError):
        avro.read_container(data.replace(data[-16:], empty[-16:]))


def test_what_is_no_container_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="not an Avro file"):
        avro.read_container(b"PAR1")
