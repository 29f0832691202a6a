"""What a commit requests at once: answers come in order, early, and what is late is asked again."""

from __future__ import annotations

from collections import Counter
from threading import Event, current_thread

import pytest

from dormouse.aws.state_store import FEWEST_HEDGED, fetched_hedged
from dormouse.errors import NotFoundError, UnavailableError
from dormouse.log.blobs import AT_ONCE, Fetch, fetched

BOTH = pytest.mark.parametrize("fetch", [fetched, fetched_hedged])
MOST_SECONDS = 5
"""So long a broken release is waited for; a sound one never waits."""


@BOTH
@pytest.mark.parametrize("count", [0, 1, 2, FEWEST_HEDGED, 30, AT_ONCE, AT_ONCE + 1, 100])
def test_answers_come_in_order(fetch: Fetch, count: int) -> None:
    assert list(fetch(lambda n: 10 * n, range(count))) == [10 * n for n in range(count)]


@BOTH
def test_the_first_answer_comes_while_others_are_on_their_way(fetch: Fetch) -> None:
    came = Event()

    def get(number: int) -> bool:
        return number == 0 or came.wait(MOST_SECONDS)

    answers = fetch(get, range(8))
    assert next(answers)
    came.set()
    assert all(answers)


@BOTH
def test_what_fails_is_raised(fetch: Fetch) -> None:
    def get(number: int) -> int:
        if number == 5:
            raise NotFoundError("5")
        return number

    with pytest.raises(NotFoundError, match="5"):
        list(fetch(get, range(8)))


def test_what_is_late_is_requested_again_and_its_first_answer_counts() -> None:
    asked, end = Counter[int](), Event()

    def get(number: int) -> int:
        asked[number] += 1
        if number == 2 and asked[number] == 1:
            end.wait(MOST_SECONDS)
            return -1
        return number

    try:
        assert list(fetched_hedged(get, range(8))) == [*range(8)]
    finally:
        end.set()
    assert asked[2] == 2


def test_a_second_request_that_fails_does_no_harm() -> None:
    asked, failed = Counter[int](), Event()

    def get(number: int) -> int:
        asked[number] += 1
        if number == 2 and asked[number] == 1:
            failed.wait(MOST_SECONDS)
        elif number == 2:
            failed.set()
            raise UnavailableError("too many requests")
        return number

    assert list(fetched_hedged(get, range(8))) == [*range(8)]


def test_a_process_that_ends_does_not_wait_for_what_is_late() -> None:
    assert all(fetched_hedged(lambda _: current_thread().daemon, range(8)))
