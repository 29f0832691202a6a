"""150 flipped bits, by stage: none gives other rows, and merges refuse them all."""

from __future__ import annotations

import pytest

from tests.bit_flips.trial import HARMLESS, REFUSED, Trial

FLIPS, SEED = 150, 7
READS_ALL = ("compact", "check --bytes", "query, whole")
"""What reads each byte of a shard; others may not need those that are damaged."""


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("flips"))


@pytest.mark.parametrize(
    "stage",
    [
        "compact",
        "export",
        "purge proof",
        "query, whole",
        "query, looked up",
        "point look-up",
        "check --bytes",
    ],
)
def test_no_flipped_bit_is_believed(trial: Trial, stage: str) -> None:
    verdicts = {flip: trial.judged(stage, flip) for flip in trial.flips(FLIPS, SEED)}
    believed = [f for f, verdict in verdicts.items() if verdict not in (REFUSED, HARMLESS)]
    assert not believed
    if stage in READS_ALL:
        assert set(verdicts.values()) == {REFUSED}
    assert REFUSED in verdicts.values()
