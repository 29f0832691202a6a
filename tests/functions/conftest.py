"""Real handlers over a world in memory; events are the files that people invoke functions with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import pytest

from dormouse.aws import handling
from dormouse.aws.logs import logger
from dormouse.aws.wiring import Wiring
from dormouse.errors import UnavailableError
from dormouse.features.tables import new_table_id
from dormouse.messages.stages import OutboundMessage
from dormouse.settings import Settings
from dormouse.state.partitions import PartitionTree
from dormouse.tables.table import Table
from dormouse_cli.local.moto_emr import run_id_of
from tests.support.adapters import MemoryOutbox
from tests.support.lambda_context import Context
from tests.support.trees import initialise
from tests.support.world import LETTERS, World
from tools import sample_events

EVENTS = Path(__file__).parents[2] / "events"
TABLE_ID = new_table_id(sample_events.create_request().request_id)
"""The table that the sample events are about."""
RUN = run_id_of("dormouse-local", sample_events.RUN_TOKEN)
"""The run of Spark that they are about."""
_NAMED = {
    **{
        name: sample_events.etag(sample_events.FILES[key])
        for name, key in (
            ("ETAG_1", "letters/1.csv"),
            ("ETAG_2", "letters/2.csv"),
            ("ETAG_BAD", "letters/bad.csv"),
        )
    },
    "RUN_1": RUN,
    "JOB": sample_events.SPARK_JOB,
}
"""What tests put something of their own for in the sample events."""


@dataclass
class Outbox(MemoryOutbox):
    """Also keeps dead letters (queue, body, reason) and what comes again soon (queue, seconds).

    While `down`, it takes no messages, and while `deaf`, no dead letters.
    """

    dead: list[tuple[str, str, str]] = field(default_factory=list)
    soon: list[tuple[str, int]] = field(default_factory=list)
    down: bool = False
    deaf: bool = False

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        self._check()
        super().send(messages)

    def retry_in(self, queue: str, receipt_handle: str, seconds: int) -> None:
        self._check()
        self.soon.append((queue, seconds))

    def _check(self) -> None:
        if self.down:
            raise UnavailableError("the queues do not answer")

    def send_to_dead_letters(self, queue: str, body: str, reason: str) -> None:
        if self.deaf:
            raise UnavailableError("the dead-letter queues do not answer")
        self.dead.append((queue, body, reason))


def record(message_id: str, body: str, receives: int = 1) -> dict[str, object]:
    """Return a message as SQS gives it to a function, for the time that `receives` says."""
    return {
        "messageId": message_id,
        "receiptHandle": "r",
        "body": body,
        "attributes": {"ApproximateReceiveCount": str(receives)},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
    }


@dataclass
class Functions:
    """The functions of an instance whose world can be looked at."""

    world: World
    outbox: Outbox
    table: Table
    left_ms: int = 300_000

    def invoke(self, stage: str, event: str, **replaced: str) -> list[str]:
        """Run a function on one of its sample events; return the ids of failed messages."""
        text = (EVENTS / stage / f"{event}.json").read_text()
        for old, new in replaced.items():
            text = text.replace(_NAMED[old], new)
        handler = import_module(f"functions.{stage}.handler")
        response = handler.handle(json.loads(text), Context(self.left_ms))
        return [item["itemIdentifier"] for item in response.get("batchItemFailures", [])]

    def deliver(self, stage: str, *bodies: str, receives: int = 1) -> list[str]:
        """Run a function on a batch of messages; return the ids of those that failed: 0, 1, …"""
        records = [record(str(number), body, receives) for number, body in enumerate(bodies)]
        handler = import_module(f"functions.{stage}.handler")
        response = handler.handle({"Records": records}, Context(self.left_ms))
        return [item["itemIdentifier"] for item in response["batchItemFailures"]]

    def sent(self) -> list[OutboundMessage]:
        """Return what was sent since the last look."""
        sent, self.outbox.sent = self.outbox.sent, []
        return sent


def instance_in(
    folder: Path, split_points: Sequence[tuple[object, ...]] = (), **properties: int | str
) -> tuple[Functions, Wiring]:
    """Return an instance called local with an empty table of letters, and its wiring."""
    world, outbox = World(folder), Outbox()
    world.sources.bucket = "dormouse-local-ingest-123456789012"
    settings = Settings("local", "123456789012", folder)
    wired = Wiring(settings, world.services, outbox)  # type: ignore[arg-type]  # a fake outbox
    table = Table(TABLE_ID, "letters", LETTERS).with_settings(properties, {})
    leaves = PartitionTree.from_split_points(split_points).by_id.values()
    world.services.store(table).commit(initialise(leaves, table.schema.key_types), generation=0)
    world.tables.create(table)
    return Functions(world, outbox, table), wired


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Functions:
    """An instance called local with an empty table of letters."""
    made, wired = instance_in(tmp_path)
    give: Callable[[], Wiring] = lambda: wired  # noqa: E731
    monkeypatch.setattr(handling, "wiring", give)
    return made


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What functions log."""
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)
    yield stream
