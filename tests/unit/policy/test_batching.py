"""How files are put into jobs: bounded, in order, none left out."""

from hypothesis import given
from hypothesis import strategies as st

from dormouse.model.sources import Source
from dormouse.policy.batching import MAX_BYTES, MAX_FILES, batches


@given(st.lists(st.integers(0, MAX_BYTES + 10), max_size=250))
def test_every_file_is_in_one_job_in_order_and_no_job_is_too_large(sizes: list[int]) -> None:
    sources = [Source("b", f"t/{i}", "e", size) for i, size in enumerate(sizes)]
    jobs = batches(sources)
    assert [source for job in jobs for source in job] == sources
    for job in jobs:
        assert 1 <= len(job) <= MAX_FILES
        assert sum(s.size_bytes for s in job) <= MAX_BYTES or len(job) == 1
