"""A selection in a message means the same rows to every reader of the message."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.access import EVERYTHING
from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.key_codec import KeyCodec
from dormouse.keys import INT64_MAX, Key, KeyRange
from dormouse.messages.stages import SelectionMessage
from dormouse.query.selection import (
    Selection,
    StoredSelection,
    decode_selection,
    encode_selection,
    load_selection,
    select,
    store_selection,
)
from dormouse.schema.schema import Schema
from dormouse.sql.conditions import parse_condition
from tests.support.batches import cells, part_of, schemas
from tests.support.every_type import EVERY_TYPE

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "IntType"}, {"name": "day", "type": "DateType"}],
        "sortKeyFields": [{"name": "at", "type": "TimestampType"}],
        "valueFields": [{"name": "v", "type": "LongType"}],
    }
)
SECRET = "Hazel"


@st.composite
def keys(draw: st.DrawFn, schema: Schema) -> Key:
    fields = schema.keys[: draw(st.integers(1, len(schema.keys)))]
    return tuple(part_of(draw(cells(field.type))) for field in fields)


@st.composite
def selections(draw: st.DrawFn) -> tuple[Schema, Selection]:
    schema = draw(schemas())
    ranges = []
    for _ in range(draw(st.integers(0, 3))):
        low, high = sorted((draw(keys(schema)), draw(keys(schema))))
        ranges.append(draw(st.sampled_from((KeyRange.exactly(low), KeyRange(low, high)))))
    ranges += draw(st.sampled_from(([], [KeyRange((), ())])))
    names = [field.name for field in schema.fields]
    chosen = draw(st.none() | st.lists(st.sampled_from(names), min_size=1))
    limit = draw(st.none() | st.integers(0, 9))
    return schema, select(schema, 7, 9, ranges, columns=chosen, limit=limit, permission=EVERYTHING)


def sent(message: SelectionMessage) -> SelectionMessage:
    """Return a message after it was JSON."""
    return msgspec.json.decode(msgspec.json.encode(message), type=SelectionMessage)


@given(selections())
def test_a_selection_means_the_same_after_it_was_sent(made: tuple[Schema, Selection]) -> None:
    schema, selection = made
    message = sent(encode_selection(selection, schema))
    assert message.as_of == selection.version
    assert (
        decode_selection(message, schema, permission=EVERYTHING, version=7, time_ms=9) == selection
    )


@given(selections())
def test_a_selection_means_the_same_after_it_was_stored(made: tuple[Schema, Selection]) -> None:
    stored = msgspec.json.encode(store_selection(made[1], made[0]))
    assert load_selection(msgspec.json.decode(stored, type=StoredSelection)) == made


@given(st.data())
def test_a_range_of_keys_is_read_back_as_it_was_sent(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    low, high = sorted((data.draw(keys(schema)), data.draw(keys(schema))))
    codec = KeyCodec(schema)
    for span in (KeyRange(low, high), KeyRange((), high), KeyRange(low), KeyRange((), ())):
        ends = json.loads(json.dumps(codec.range_to_json(span)))
        assert codec.range_from_json(ends, "range 1") == span


def test_keys_and_ranges_of_a_message_are_added_and_its_condition_is_parsed() -> None:
    message = SelectionMessage(
        keys=((5,), (7, "2024-02-29")),
        ranges=(((10,), None), (None, (2,))),
        where=" v > 1 ",
        columns=("v", "k", "v"),
    )
    found = decode_selection(message, SCHEMA, permission=EVERYTHING, version=3, time_ms=4)
    assert found == Selection(
        3,
        ("v", "k"),
        (
            KeyRange((), (2,)),
            KeyRange((5,), (6,)),
            KeyRange((7, 19782), (7, 19783)),
            KeyRange((10,), None),
        ),
        parse_condition("v > 1", SCHEMA),
        None,
        4,
    )


def test_now_is_the_time_of_the_selection_also_for_who_reads_its_message_later() -> None:
    first = SelectionMessage(where="day >= current_date - INTERVAL '1 day'")
    found = decode_selection(
        first, SCHEMA, permission=EVERYTHING, version=3, time_ms=2 * 86_400_000
    )
    later = decode_selection(
        encode_selection(found, SCHEMA), SCHEMA, permission=EVERYTHING, version=3, time_ms=10**12
    )
    assert found.where == later.where == "(\"day\" >= DATE '1970-01-02')"


def test_what_has_no_time_such_as_a_purge_has_no_present() -> None:
    with pytest.raises(InvalidRequestError, match="has no present time"):
        decode_selection(
            SelectionMessage(where="day < now()"),
            SCHEMA,
            permission=EVERYTHING,
            version=0,
            time_ms=0,
        )


def test_a_message_without_ranges_asks_for_all_rows_and_one_of_an_empty_range_for_none() -> None:
    everything = decode_selection(
        SelectionMessage(), SCHEMA, permission=EVERYTHING, version=1, time_ms=0
    )
    assert everything.ranges == (KeyRange(),)
    assert encode_selection(everything, SCHEMA).ranges == ()
    nothing = select(SCHEMA, 1, 0, [KeyRange((), ())], permission=EVERYTHING)
    message = encode_selection(nothing, SCHEMA)
    assert message.ranges == ((None, ()),)
    assert decode_selection(message, SCHEMA, permission=EVERYTHING, version=1, time_ms=0) == nothing


def test_the_greatest_key_of_a_type_is_selected_exactly() -> None:
    message = SelectionMessage(keys=((2**31 - 1,), (5, "9999-12-31", INT64_MAX)))
    found = decode_selection(message, SCHEMA, permission=EVERYTHING, version=1, time_ms=0)
    again = sent(encode_selection(found, SCHEMA))
    assert decode_selection(again, SCHEMA, permission=EVERYTHING, version=1, time_ms=0) == found
    assert found.ranges[1] == KeyRange((2**31 - 1,), None)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (SelectionMessage(keys=((),)), "key 1 has 0 parts"),
        (SelectionMessage(ranges=(((), None),)), "range 1 has 0 parts"),
        (SelectionMessage(ranges=(((2,), (1,)),)), "range 1 ends"),
        (SelectionMessage(columns=("x",)), "x"),
        (SelectionMessage(where="v >"), "ends too early"),
        (SelectionMessage(limit=-1), "a limit is a number of rows"),
    ],
)
def test_a_message_that_does_not_fit_the_table_is_refused(
    message: SelectionMessage, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        decode_selection(message, SCHEMA, permission=EVERYTHING, version=1, time_ms=0)


@pytest.mark.parametrize(
    "rows", [SelectionMessage(where=f"k = '{SECRET}'"), SelectionMessage(keys=((SECRET,),))]
)
def test_a_stored_selection_that_cannot_be_read_is_refused_without_its_values(
    rows: SelectionMessage,
) -> None:
    with pytest.raises(CorruptDataError) as raised:
        load_selection(StoredSelection(SCHEMA.to_json(), 1, 0, rows))
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_every_type_of_schema_can_be_stored_with_a_selection() -> None:
    selection = select(EVERY_TYPE, 1, 0, permission=EVERYTHING)
    assert load_selection(store_selection(selection, EVERY_TYPE)) == (EVERY_TYPE, selection)
