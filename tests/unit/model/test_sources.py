"""What identifies a dropped file, and which table it belongs to."""

import pytest

from dormouse.errors import RefusedSourceError
from dormouse.model.sources import Source, job_id_of, table_name_of

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
