"""What is a file, what identifies it, and which table it belongs to."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import RefusedSourceError
from dormouse.state.sources import Source, is_file, job_id_of, table_name_of
from tests.support.stray_objects import FILES, STRAYS

A = Source("bucket", "flights/a.parquet", "etag", 10)


def test_the_same_content_under_the_same_key_is_one_source_whatever_its_size_says() -> None:
    assert A.id == Source("bucket", "flights/a.parquet", "etag", 11).id
    assert len(A.id) == 32


@pytest.mark.parametrize(
    "other",
    [
        Source("other", "flights/a.parquet", "etag", 10),
        Source("bucket", "flights/b.parquet", "etag", 10),
        Source("bucket", "flights/a.parquet", "etag2", 10),
    ],
)
def test_another_bucket_key_or_content_is_another_source(other: Source) -> None:
    assert A.id != other.id


def test_a_notification_with_and_a_listing_without_a_version_mean_one_source() -> None:
    assert A.id == Source("bucket", "flights/a.parquet", "etag", 10, version="v2").id


def test_a_job_has_one_id_whatever_the_order_of_its_sources() -> None:
    b = Source("bucket", "flights/b.parquet", "etag", 10)
    assert job_id_of((A, b)) == job_id_of((b, A)) != job_id_of((A,))


def test_a_job_of_the_same_sources_is_another_once_the_table_was_reset() -> None:
    assert len({job_id_of((A,), generation) for generation in (0, 1, 2)}) == 3


def test_the_first_folder_names_the_table() -> None:
    assert table_name_of("flights/2013/01.parquet") == "flights"


@pytest.mark.parametrize(
    "key", ["a.parquet", "/a.parquet", "flights/", "", "flights/../x", "../x/y", "flights/a\n.csv"]
)
def test_keys_that_climb_or_name_no_table_are_refused(key: str) -> None:
    with pytest.raises(RefusedSourceError, match="key"):
        table_name_of(key)


def test_spark_and_dormouse_take_the_same_keys_for_files() -> None:
    assert [name for name in (*FILES, *STRAYS) if is_file(f"flights/{name}")] == list(FILES)


@given(st.lists(st.text("_.=p$1", min_size=1) | st.sampled_from(["a._COPYING_", "a_$folder$"])))
def test_one_hidden_part_hides_a_key_wherever_it_is(parts: list[str]) -> None:
    hidden = [re.fullmatch(r"\..*|_[^=]*|.*(\._COPYING_|_\$folder\$)", part) for part in parts]
    assert is_file("/".join(("flights", *parts))) == (not any(hidden))
    assert not is_file("/".join(("flights", *parts, "")))
