from __future__ import annotations

import json

from dormouse.state.state import DisputeReason, DisputeShards
from dormouse.stored.paths import shard_path
from tests.cli.conftest import Dormouse
from tests.support.damage import flipped, rewrite
from tests.support.instances import InMemory


def test_a_sound_table_is_called_so_with_exit_code_0(flights: Dormouse) -> None:
    result = flights("check", "flights")
    assert result.exit_code == 0
    assert "1 shard with 5 rows" in result.stderr
    assert "nothing is wrong" in result.stderr
    report = json.loads(flights("check", "flights", "--format", "json").stdout)
    assert (report["shards"], report["rows"], report["findings"]) == (1, 5, [])


def test_what_is_wrong_is_listed_with_what_to_do_and_exit_code_1(
    flights: Dormouse, memory: InMemory
) -> None:
    handle = memory.instance.table("flights")
    (shard,) = handle.state().shards
    memory.world.storage.delete([shard_path(handle.table.id, shard)])
    result = flights("check", "flights")
    assert result.exit_code == 1
    for text in ("shard_missing", shard, "with it 5 rows", "restore the object"):
        assert text in result.stdout
    report = flights("check", "flights", "--format", "json")
    assert report.exit_code == 1
    (finding,) = json.loads(report.stdout)["findings"]
    assert (finding["damage"], finding["subject"]) == ("shard_missing", shard)


def test_a_disputed_shard_is_a_finding_until_it_is_acknowledged(
    flights: Dormouse, memory: InMemory
) -> None:
    handle = memory.instance.table("flights")
    (shard,) = handle.state().shards
    damaged = DisputeShards((shard,), DisputeReason.BYTES_DAMAGED, "job-1")
    memory.world.new_store(handle.table).commit(damaged, generation=0)
    result = flights("check", "flights", "--format", "json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["damage"], finding["subject"]) == ("bytes_damaged", shard)
    assert "job-1" in finding["detail"]
    assert json.loads(flights("metrics", "flights", "--format", "json").stdout)["disputed_shards"]
    merged = flights("compact", "flights", "--all", "--wait")
    assert merged.exit_code == 1
    assert "1 shard of table flights cannot be merged" in merged.stderr
    assert flights("check", "flights", "--acknowledge", "other").exit_code == 4
    result = flights("check", "flights", "--acknowledge", shard)
    assert result.exit_code == 0
    assert f"resolved the disputes over {shard}" in result.stderr


def test_with_bytes_a_flipped_bit_of_the_rows_is_found(flights: Dormouse, memory: InMemory) -> None:
    handle = memory.instance.table("flights")
    (shard,) = handle.state().shards
    file = memory.world.folder / "data" / shard_path(handle.table.id, shard)
    rewrite(file, flipped(file.read_bytes(), 30))
    assert flights("check", "flights").exit_code == 0
    result = flights("check", "flights", "--bytes")
    assert result.exit_code == 1
    assert "shard_damaged" in result.stdout


def test_checking_an_unknown_table_is_no_finding(dormouse: Dormouse) -> None:
    assert dormouse("check", "nothing").exit_code == 3
