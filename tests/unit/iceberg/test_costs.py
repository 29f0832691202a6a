"""What a publication of many shards costs: objects, bytes and reads, not time."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.iceberg import publications
from bench.iceberg.__main__ import BOUNDS
from bench.iceberg.publications import Publisher

SHARDS = 10_000


def test_a_change_of_many_shards_puts_little_reads_no_footer_and_no_change_puts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[dict[str, float]] = []
    monkeypatch.setattr(publications, "emit", lambda *_, **figures: costs.append(figures))
    publisher = Publisher(SHARDS, tmp_path / "data")
    fetched: list[str] = []
    get = publisher.storage.get
    monkeypatch.setattr(publisher.storage, "get", lambda path: fetched.append(path) or get(path))
    publisher.publish("first", ())
    publisher.publish("1+1", publisher.change(1))
    publisher.publish("nothing", ())
    first, change, nothing = costs
    most = BOUNDS["puts"] + 1  # the compaction and the new shard may be in two manifests
    assert change["puts"] <= most < first["puts"]
    assert change["size_bytes"] <= BOUNDS["size_bytes"]
    assert nothing["puts"] == nothing["size_bytes"] == 0
    assert fetched
    assert all(path.startswith("table/iceberg/metadata/") for path in fetched)
    assert len(fetched) == change["gets"] + nothing["gets"] <= 4
