"""Files are dropped, and each is announced twice; what becomes of them is watched."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import boto3

from dormouse.client.table import TableHandle
from dormouse.state.sources import Source
from tests.chaos.row_ledger import RowLedger
from tests.chaos.tables import DroppedFile, Plan, write_file
from tests.chaos.tally import Tally

LATEST_DUPLICATE_SECONDS = 60


def files_of(
    plans: Sequence[Plan], seed: int, count: int, rows: tuple[int, int]
) -> list[tuple[Plan, DroppedFile]]:
    """Make up the files of a run, in the order in which they are dropped; some are broken."""
    rng = random.Random(f"{seed}-files")
    numbers = dict.fromkeys((plan.name for plan in plans), 0)
    found = []
    for i in range(count):
        plan = plans[i % len(plans)]
        number = numbers[plan.name]
        numbers[plan.name] += 1
        is_broken = rng.random() < 0.03
        found.append((plan, plan.file(seed, number, rng.randint(*rows), is_broken)))
    return found


class Notifier:
    """Sends a second notification of dropped files some time later, as S3 may."""

    def __init__(self, queue_name: str, seed: int) -> None:
        self._sqs: Any = boto3.client("sqs")
        self._url = self._sqs.get_queue_url(QueueName=queue_name)["QueueUrl"]
        self._random = random.Random(f"{seed}-duplicates")

    def announce(self, source: Source) -> None:
        """Send the notification of a source."""
        described = {
            "key": quote_plus(source.key, safe="/"),
            "size": source.size_bytes,
            "eTag": source.etag,
            "versionId": source.version,
        }
        s3 = {"bucket": {"name": source.bucket}, "object": described}
        event = {"Records": [{"eventName": "ObjectCreated:Put", "s3": s3}]}
        seconds = self._random.randint(0, LATEST_DUPLICATE_SECONDS)
        self._sqs.send_message(
            QueueUrl=self._url, MessageBody=json.dumps(event), DelaySeconds=seconds
        )


class Files:
    """What was dropped, by table, and what is known of it."""

    def __init__(
        self, handles: Mapping[str, TableHandle], ledgers: Mapping[str, RowLedger], tally: Tally
    ) -> None:
        self._handles, self._ledgers, self._tally = handles, ledgers, tally
        self._lock = threading.Lock()
        self._open: dict[str, dict[str, DroppedFile]] = {name: {} for name in handles}

    def drop(self, plan: Plan, file: DroppedFile, folder: Path) -> Source:
        """Drop one file, for the first time or again."""
        self._ledgers[plan.name].dropped(file)
        path = write_file(plan, file, folder)
        (source,) = self._handles[plan.name].ingest(path).sources
        path.unlink()
        with self._lock:
            self._open[plan.name][source.id] = file
        return source

    def look(self) -> int:
        """Record which files are ingested by now; return how many have no end yet."""
        for name, handle in self._handles.items():
            with self._lock:
                waiting = dict(self._open[name])
            if not waiting:
                continue
            state = handle.state()
            done = {id: f for id, f in waiting.items() if id in state.sources}
            for id, file in waiting.items():
                if id not in done:
                    record = handle.services.tracker.get(handle.table.id, id)
                    if record is not None and record.state == "refused":
                        done[id] = file
                        self._judge_refusal(file, record.reason)
                elif file.is_broken:
                    self._tally.wrong(f"table {name}: the broken file {file.name} was ingested")
            self._ledgers[name].ingested(f.number for f in done.values() if not f.is_broken)
            with self._lock:
                for id in done:
                    del self._open[name][id]
        return self.left()

    def left(self) -> int:
        """Count the files that are neither ingested nor refused, as far as is known."""
        with self._lock:
            return sum(map(len, self._open.values()))

    def names_left(self) -> list[str]:
        """Return the files that have no end yet."""
        with self._lock:
            return sorted(
                f"{t}/{f.name}" for t, files in self._open.items() for f in files.values()
            )

    def _judge_refusal(self, file: DroppedFile, reason: str) -> None:
        self._tally.count("refused", file.table)
        if not file.is_broken:
            self._tally.wrong(f"table {file.table}: {file.name} was refused: {reason}")


def drop_all(
    files: Files,
    dropped: Sequence[tuple[Plan, DroppedFile]],
    notifier: Notifier,
    folder: Path,
    seed: int,
    seconds: float,
    tally: Tally,
) -> None:
    """Drop files over so many seconds, in bursts; every tenth is dropped twice, unchanged."""
    rng = random.Random(f"{seed}-pauses")
    moments = sorted(round(rng.random(), 2) * seconds for _ in dropped)
    began = time.monotonic()
    for moment, (plan, file) in zip(moments, dropped, strict=True):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        notifier.announce(files.drop(plan, file, folder))
        tally.count("files", plan.name)
        tally.count("rows", plan.name, 0 if file.is_broken else len(file.rows))
        if rng.random() < 0.1:
            files.drop(plan, file, folder)
