"""What has arrived of a file: readers wait for just that, and learn why no more will come."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import UnavailableError
from dormouse.ports import Arrivals, StoppedError

SIZE = 12
_ends = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE))
_spans = st.lists(_ends.filter(lambda ends: ends[0] < ends[1]), max_size=6)


@given(spans=_spans, start=st.integers(0, SIZE + 3), count=st.integers(0, SIZE))
def test_a_reader_may_read_up_to_the_first_byte_that_has_not_arrived(
    spans: list[tuple[int, int]], start: int, count: int
) -> None:
    arrivals = Arrivals(SIZE)
    for low, high in spans:
        arrivals.add(low, high)
    arrived = {at for low, high in spans for at in range(low, high)}
    end = min(start + count, SIZE)
    until = next((at for at in range(start, end) if at not in arrived), end)
    if until > start or start >= end:  # else it waits
        assert arrivals.wait(start, start + count) == until


def ended(error: BaseException | None = None) -> Future[None]:
    download: Future[None] = Future()
    if error is None:
        download.set_result(None)
    else:
        download.set_exception(error)
    return download


def test_a_reader_waits_for_its_bytes_and_for_no_others() -> None:
    arrivals = Arrivals(SIZE)
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(arrivals.wait, 4, 8)
        arrivals.add(0, 4)
        arrivals.add(6, 8)
        assert not reading.done()
        arrivals.add(4, 5)
        assert reading.result() == 5
    assert arrivals.is_incomplete()
    arrivals.end(ended())
    assert not arrivals.is_incomplete()
    assert arrivals.wait(8, 2 * SIZE) == SIZE


def test_who_waits_learns_of_the_end_of_a_download_that_names_no_pieces() -> None:
    arrivals = Arrivals(SIZE)
    with ThreadPoolExecutor(3) as threads:
        waiting = [
            threads.submit(arrivals.wait, 0, 1),
            threads.submit(arrivals.wait_for_all),
            threads.submit(arrivals.is_incomplete),
        ]
        arrivals.end(ended())
        assert [each.result() for each in waiting] == [1, None, False]


def test_who_waits_learns_why_a_download_has_failed_and_bytes_that_came_are_no_file() -> None:
    arrivals = Arrivals(SIZE)
    arrivals.add(0, 4)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(arrivals.wait, 4, 8), threads.submit(arrivals.wait_for_all)]
        arrivals.end(ended(UnavailableError("no answer")))
        for each in waiting:
            with pytest.raises(UnavailableError):
                each.result()
    with pytest.raises(UnavailableError):
        arrivals.wait(0, 4)


def test_a_download_that_nobody_needs_ends_with_its_next_piece() -> None:
    arrivals = Arrivals(SIZE)
    arrivals.add(0, 4)
    arrivals.stop()
    with pytest.raises(StoppedError):
        arrivals.add(4, 8)
    never_begun: Future[None] = Future()
    never_begun.cancel()
    arrivals.end(never_begun)
    with pytest.raises(StoppedError):
        arrivals.wait_for_all()
