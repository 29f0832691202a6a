"""A cluster fits its job, and waits grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.state.jobs import LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS, cluster_size, wait_seconds
from dormouse.tables.properties import Properties

GIB = 1024**3


@given(st.integers(0, 2**50), st.integers(1, 2**40), st.integers(1, 500))
def test_no_executor_is_idle_and_none_has_more_than_its_share_unless_the_limit_says_so(
    input_bytes: int, share: int, limit: int
) -> None:
    properties = Properties(spark_executor_input_bytes=share, spark_executors=limit)
    size = cluster_size(input_bytes, properties)
    assert 1 <= size.executors <= limit
    assert size.executors == 1 or input_bytes > (size.executors - 1) * share
    assert size.executors == limit or input_bytes <= size.executors * share


def test_a_table_says_how_large_its_executors_are() -> None:
    properties = Properties(spark_executor_cores=8, spark_executor_memory_bytes=32 * GIB)
    size = cluster_size(0, properties)
    assert (size.executors, size.executor_cores, size.executor_memory_bytes) == (1, 8, 32 * GIB)


@given(st.floats(0, 10**7), st.floats(0, 10**7))
def test_waits_grow_with_the_age_within_what_queues_can_delay(one: float, other: float) -> None:
    younger, older = sorted((one, other))
    assert LEAST_WAIT_SECONDS <= wait_seconds(younger) <= wait_seconds(older) <= MOST_WAIT_SECONDS
