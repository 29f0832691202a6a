"""The instance that is simulated works where nothing fails, and shows what fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.messages.requests import CreateTable
from tests.simulation.instance import Instance, Worker
from tests.simulation.processes import Call, Died, Fate
from tests.simulation.queues import feeds
from tests.support.queries import query_rows
from tests.support.world import LETTERS, letters, letters_file


def settled(instance: Instance, worker: Worker) -> None:
    """Deliver all there is, and wait for what is hidden, but not for what never ends."""
    for _ in range(200):
        delivered = False
        for queue in feeds():
            while delivery := instance.take(queue):
                worker.handle(delivery)
                delivered = True
        for run_id in instance.undriven():
            worker.drive(run_id)
            delivered = True
        then = instance.queues.next_visible_ms()
        if then is None:
            return
        if not delivered:
            instance.clock.ms = max(instance.clock.ms, then)
    raise AssertionError("there is no end to messages")


def letters_of(instance: Instance, name: str) -> str:
    """Return the letters of all rows, in order, as a cold process reads them."""
    services = instance.worker("reader").wiring.services
    table = services.tables.named(name)
    assert table is not None
    state = services.store(table).current()
    result = query_rows(
        services.storage,
        table,
        state,
        [],
        now_ms=services.clock.now_ms(),
        scratch=services.scratch,
        memory_bytes=services.memory_bytes,
    )
    return "".join(result.reader.read_all()["letter"].to_pylist())


@pytest.mark.parametrize("store", ["s3", "dynamodb"])
@pytest.mark.parametrize("spark", [0, 1])
def test_files_become_rows_by_the_real_handlers(tmp_path: Path, store: str, spark: int) -> None:
    instance = Instance(tmp_path)
    properties: dict[str, object] = {
        "state_store": store,
        "ingest_batch_min_files": 2,
        "split_threshold_rows": 30,
        "compaction_files": 2,
        "ingest_spark_bytes": spark,
        "compaction_spark_bytes": spark,
    }
    with instance.running():
        worker = instance.worker("only")
        instance.ask(CreateTable("made", "letters", LETTERS.to_json(), properties))
        settled(instance, worker)
        for number in range(6):
            body = letters_file(letters("abcdefghij", at=10 * number))
            instance.drop(f"letters/{number}.parquet", body)
            settled(instance, worker)
        assert letters_of(instance, "letters") == "".join(sorted("abcdefghij" * 6))
        assert not instance.failures
        assert not instance.queues.dead()


def test_a_message_whose_process_died_is_redelivered_after_its_visibility_timeout(
    tmp_path: Path,
) -> None:
    instance = Instance(tmp_path)

    def dies(call: Call) -> Fate:
        return Fate.DIES_AFTER if call.method == "create" else Fate.LANDS

    with instance.running():
        instance.ask(CreateTable("made", "letters", LETTERS.to_json()))
        delivery = instance.take("admin")
        assert delivery is not None
        with pytest.raises(Died):
            instance.worker("first", dies).handle(delivery)
        assert instance.take("admin") is None
        instance.clock.advance(seconds=feeds()["admin"].visibility_seconds)
        again = instance.take("admin")
        assert again is not None
        assert instance.worker("second").handle(again) == []
        assert instance.queues.waiting() == 0


def test_a_message_that_fails_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    with instance.running():
        instance.ask(CreateTable("made", "letters", LETTERS.to_json()))
        for number in range(feeds()["admin"].receives):
            delivery = instance.take("admin")
            assert delivery is not None
            worker = instance.worker(f"number {number}", lambda call: Fate.REFUSED)
            assert worker.handle(delivery)
            instance.clock.advance(seconds=feeds()["admin"].visibility_seconds)
        assert instance.take("admin") is None
        assert [queue for queue, _ in instance.queues.dead()] == ["admin"]
        assert len(instance.failures) == feeds()["admin"].receives
