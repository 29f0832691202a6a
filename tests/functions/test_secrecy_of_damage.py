"""No function discloses a value of a row, whatever damage or message it meets."""

from __future__ import annotations

import io

import pytest

from dormouse.errors import UnavailableError
from dormouse.messages.requests import ReinitialiseTable
from dormouse.messages.stages import encode
from tests.functions.conftest import Functions
from tests.functions.damage import DAMAGES, damage, with_everything
from tests.functions.disclosure import SECRET, disclosed, run_scheduled, values_in
from tests.template.conftest import QUEUE_OF, SCHEDULED

TOLD_BY = {
    "pages of shards": {"compact", "purge_rows", "export_rows", "answer_query"},
    "footers of shards": {
        *("compact", "purge_rows", "export_rows", "answer_query", "split_partition")
    },
    "the state": {*QUEUE_OF, *SCHEDULED} - {"batch_files", "export_rows"},
    "conditions of requests": {"purge_rows", "export_rows"},
    "requests": {"purge_rows", "export_rows"},
    "requests for Spark": {"dispatch_spark", "track_spark", "sweep"},
}
"""Which functions meet the damage, and say so."""


def run(functions: Functions, stage: str, messages: dict[str, str]) -> None:
    if stage in SCHEDULED:
        run_scheduled(stage)
    else:
        functions.deliver(stage, messages[stage])


@pytest.mark.parametrize(
    ("what", "stage"), [(what, stage) for what in DAMAGES for stage in sorted(TOLD_BY[what])]
)
def test_a_function_that_meets_damage_says_so_without_a_value(
    functions: Functions,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    what: str,
    stage: str,
) -> None:
    messages = with_everything(functions)
    disclosed_before = disclosed(functions, log, capsys)
    damage(functions, what)
    run(functions, stage, messages)
    text = disclosed(functions, log, capsys).removeprefix(disclosed_before)
    assert "CorruptDataError" in text or "state='failed'" in text
    assert not values_in(disclosed_before + text)


@pytest.mark.parametrize("stage", [*QUEUE_OF, *SCHEDULED])
def test_a_function_whose_neighbours_do_not_answer_says_so_without_a_value(
    functions: Functions,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
) -> None:
    messages = with_everything(functions)

    def down(*_: object, **__: object) -> None:
        raise UnavailableError("nothing answers")

    for name in ("get", "all", "list_readable"):
        monkeypatch.setattr(functions.world.tables, name, down)
    for name in ("list", "open", "get", "put", "upload"):
        monkeypatch.setattr(functions.world.storage, name, down)
    monkeypatch.setattr(functions.world.spark, "describe", down)
    functions.outbox.down = True
    run(functions, stage, messages)
    text = disclosed(functions, log, capsys)
    assert "nothing answers" in text or "the queues do not answer" in text
    assert not values_in(text)


@pytest.mark.parametrize(
    ("stage", "said"), [("compact", "too late to be committed"), ("split_partition", "not split")]
)
def test_a_commit_that_is_rejected_is_reported_without_a_value(
    functions: Functions,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    said: str,
) -> None:
    """The table is reset just before."""
    messages = with_everything(functions)
    emptying = encode(ReinitialiseTable("again", "letters"))
    functions.world.before_next_commit(lambda: functions.deliver("administer", emptying))
    functions.deliver(stage, messages[stage])
    text = disclosed(functions, log, capsys)
    assert said in text
    assert not values_in(text)


@pytest.mark.parametrize("stage", sorted(QUEUE_OF))
@pytest.mark.parametrize(
    "body",
    [
        SECRET,
        f'"{SECRET}"',
        f'{{"{SECRET}": 1}}',
        f'{{"type": "{SECRET}"}}',
        f'{{"type": "purge_rows", "request_id": "r", "name": "x", "selection": "{SECRET}"}}',
        f'{{"type": "export_rows", "request_id": "r", "selection": {{"keys": "{SECRET}"}}}}',
        f'{{"type": "purge_step", "table_id": "{SECRET}", "v": "{SECRET}"}}',
    ],
)
def test_an_undecodable_message_is_reported_without_a_value(
    functions: Functions,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    body: str,
) -> None:
    assert functions.deliver(stage, body) == []
    ((queue, letter, _),) = functions.outbox.dead
    assert (queue, letter) == (QUEUE_OF[stage], body)
    text = disclosed(functions, log, capsys)
    assert "dead letter" in text
    assert not values_in(text)
