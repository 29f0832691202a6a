"""How files are put into jobs: bounded, in order, none left out."""

from hypothesis import given
from hypothesis import strategies as st

from dormouse.features.batch_files import (
    BATCH_TICK_SECONDS,
    balanced_batches,
    batches,
    due_batches,
    seconds_to_wait,
)
from dormouse.messages.stages import IngestJob, encode
from dormouse.state.sources import Source
from dormouse.tables.properties import Properties

DEFAULTS = Properties()
MAX_FILES, MAX_BYTES = DEFAULTS.ingest_job_max_files, DEFAULTS.ingest_job_max_bytes


@given(st.lists(st.integers(0, MAX_BYTES + 10), max_size=250))
def test_every_file_is_in_one_job_in_order_and_no_job_is_too_large(sizes: list[int]) -> None:
    sources = [Source("b", f"t/{i}", "e", size) for i, size in enumerate(sizes)]
    jobs = batches(sources, DEFAULTS)
    assert [source for job in jobs for source in job] == sources
    for job in jobs:
        assert 1 <= len(job) <= MAX_FILES
        assert sum(s.size_bytes for s in job) <= MAX_BYTES or len(job) == 1


def files(*sizes_bytes: int) -> list[Source]:
    return [Source("b", f"t/{i}", "e", size) for i, size in enumerate(sizes_bytes)]


def test_by_default_nothing_waits() -> None:
    for size in (1, 0):
        assert due_batches(files(size), DEFAULTS) == ([tuple(files(size))], ())
    assert due_batches([], DEFAULTS) == ([], ())


def test_both_minima_must_be_reached_unless_the_job_is_full() -> None:
    wanted = Properties(
        ingest_batch_min_files=3, ingest_batch_min_bytes=100, ingest_job_max_files=5
    )
    for sizes in ((50, 50), (1, 1, 1), (1000,)):
        assert due_batches(files(*sizes), wanted) == ([], tuple(files(*sizes)))
    assert due_batches(files(50, 50, 1), wanted) == ([tuple(files(50, 50, 1))], ())
    assert due_batches(files(*[1] * 5), wanted) == ([tuple(files(*[1] * 5))], ())
    jobs, left = due_batches(files(*[1] * 7), wanted)
    assert [len(job) for job in jobs] == [5]
    assert len(left) == 2


@given(
    st.lists(st.integers(0, 50), max_size=40),
    st.integers(1, 10),
    st.integers(1, 10),
    st.integers(0, 200),
    st.integers(1, 100),
)
def test_every_file_is_in_a_job_or_waits_whatever_the_limits(
    sizes: list[int], max_files: int, min_files: int, min_bytes: int, max_bytes: int
) -> None:
    wanted = Properties(
        ingest_job_max_files=max_files,
        ingest_job_max_bytes=max_bytes,
        ingest_batch_min_files=min_files,
        ingest_batch_min_bytes=min_bytes,
    )
    jobs, left = due_batches(files(*sizes), wanted)
    assert [s for job in jobs for s in job] + list(left) == files(*sizes)
    assert len(left) < max_files
    assert all(jobs)


def test_a_job_fits_a_message_however_many_files_it_may_have() -> None:
    keys = [Source("bucket", "t/" + "\\" * 1000 + str(i), "e" * 32, 10**12) for i in range(3000)]
    for job in batches(keys, Properties(ingest_job_max_files=10**6, ingest_job_max_bytes=2**62)):
        assert len(encode(IngestJob("t" * 32, 0, "j" * 32, job)).encode()) < 1024 * 1024


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**4))
def test_files_wait_no_longer_than_they_may_and_meet_on_whole_minutes(
    since_s: int, age_s: int, max_age_seconds: int
) -> None:
    now_ms = (since_s + age_s) * 1000
    seconds = seconds_to_wait(since_s * 1000, now_ms, max_age_seconds)
    assert 0 <= seconds <= BATCH_TICK_SECONDS
    assert (seconds == 0) == (age_s >= max_age_seconds)
    is_whole = (now_ms // 1000 + seconds) % BATCH_TICK_SECONDS == 0
    assert is_whole or age_s + seconds == max(age_s, max_age_seconds)


@given(
    sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=60),
    least=st.integers(1, 8),
    most_bytes=st.integers(1, 2000),
)
def test_bundles_hold_every_file_once_and_differ_by_no_more_than_a_file(
    sizes: list[int], least: int, most_bytes: int
) -> None:
    sources = [Source("b", str(n), "e", size) for n, size in enumerate(sizes)]
    bundles = balanced_batches(sources, least, most_bytes)
    assert sorted(s.key for bundle in bundles for s in bundle) == sorted(s.key for s in sources)
    assert len(bundles) >= min(least, len(sources))
    taken = [sum(s.size_bytes for s in bundle) for bundle in bundles]
    assert max(taken) - min(taken) <= max(sizes)
    assert max(taken) <= most_bytes + max(sizes)
