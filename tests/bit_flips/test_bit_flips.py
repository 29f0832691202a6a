"""150 flipped bits, by stage: none gives other rows, and merges refuse all that they read."""

from __future__ import annotations

import pytest

from tests.bit_flips.trial import HARMLESS, REFUSED, Trial

FLIPS, SEED = 150, 7
READS_FOOTERS, READS_ROWS = ("compact",), ("compact", "query, whole")
READS_ALL = "check --bytes"
"""What reads all footers, what reads all rows of a shard, and what reads each byte; others may not
need those that are damaged.
"""


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
    for flip, verdict in verdicts.items():
        readers = {"page indexes": (), "footer": READS_FOOTERS}.get(flip.region, READS_ROWS)
        if stage == READS_ALL or stage in readers:
            assert verdict == REFUSED, flip
    assert REFUSED in verdicts.values()
