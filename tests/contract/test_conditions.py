"""A server that ignores conditions of writes is noticed by name, before rows are lost on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dormouse.aws import conditions
from dormouse.aws.conditions import Conditions
from dormouse.aws.wiring import conditions_of, wire
from dormouse.errors import ServiceRefusedError
from dormouse.log.log import Log
from dormouse.settings import CONDITIONS_TRIED_AT, Settings
from dormouse.state.versions import PublicationRecord
from dormouse.stored.paths import InstanceNames
from dormouse.system import TimeOrderedIds
from dormouse.tables.table import Table
from tests.contract.mocked_aws import dynamodb_table, mocked_aws, s3_bucket
from tests.contract.state_pages import DynamoPages
from tests.support.retries import WITHOUT_PAUSES
from tests.support.world import LETTERS

NAMES = InstanceNames("dev", "123456789012")
Params = dict[str, Any]


class Server:
    """S3 and DynamoDB that are not AWS's; `ignore` makes them ignore a condition."""

    def __init__(self) -> None:
        self.s3: Any = s3_bucket(NAMES.results_bucket)
        self.dynamodb: Any = dynamodb_table(NAMES.table("state"), "t", "g")
        self.sent: list[str] = []
        for client in (self.s3, self.dynamodb):
            client.meta.events.register("before-call", self._note)
        ids = TimeOrderedIds()
        self.conditions = Conditions(self.s3, self.dynamodb, NAMES, ids.new)

    def _note(self, model: Any, **_: object) -> None:
        self.sent.append(model.name)

    @contextmanager
    def changing(self, operation: str, change: Callable[[Params], object]) -> Iterator[None]:
        def before(params: Params, **_: object) -> None:
            change(params)

        event = f"provide-client-params.*.{operation}"
        for client in (self.s3, self.dynamodb):
            client.meta.events.register(event, before)
        yield
        for client in (self.s3, self.dynamodb):
            client.meta.events.unregister(event, before)

    @contextmanager
    def refusing(self, code: str, *operations: str) -> Iterator[None]:
        def refuse(params: Params) -> None:
            said = {"Error": {"Code": code, "Message": "of this server"}}
            status = {"ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError({**said, **status}, operations[0])  # type: ignore[typeddict-item]

        with ExitStack() as stack:
            for operation in operations:
                stack.enter_context(self.changing(operation, refuse))
            yield

    def left(self) -> list[object]:
        objects = self.s3.list_objects_v2(Bucket=NAMES.results_bucket).get("Contents", [])
        return [*objects, *self.dynamodb.scan(TableName=NAMES.table("state"))["Items"]]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(conditions, "is_of_aws", lambda uri: False)
    monkeypatch.setattr(conditions, "AT_ONCE", 2)
    with mocked_aws(monkeypatch):
        yield Server()


def without(name: str) -> Callable[[Params], object]:
    return lambda params: params.pop(name, None)


def as_one_write(params: Params) -> None:
    """Leave out the half of a transaction that has the condition, and so is refused."""
    del params["TransactItems"][1]


IGNORED: tuple[tuple[str, Callable[[Params], object]], ...] = (
    ("If-None-Match of PutObject", without("IfNoneMatch")),
    ("If-Match of GetObject", without("IfMatch")),
    ("If-None-Match of CompleteMultipartUpload", without("IfNoneMatch")),
    ("ConditionExpression of PutItem", without("ConditionExpression")),
    ("ConditionExpression of UpdateItem", without("ConditionExpression")),
    (
        "ConditionExpression of TransactWriteItems",
        lambda params: [
            each["Put"].pop("ConditionExpression", 0) for each in params["TransactItems"]
        ],
    ),
    ("ConditionExpression of TransactWriteItems", as_one_write),
)


def test_a_server_that_holds_to_all_conditions_is_taken_and_nothing_is_left_there(
    server: Server,
) -> None:
    server.conditions.check()
    assert server.left() == []


def test_each_condition_that_a_server_ignores_is_refused_by_its_name(server: Server) -> None:
    for name, change in IGNORED:
        ignoring = server.changing(name.rpartition(" ")[2], change)
        with ignoring, pytest.raises(ServiceRefusedError) as refused:
            server.conditions.check()
        assert str(refused.value).endswith(f": {name}"), name
        assert server.left() == [], name


def test_a_lacking_operation_is_told_as_such_and_lacking_permission_needs_no_condition(
    server: Server,
) -> None:
    with server.refusing("AccessDenied", "PutObject", "PutItem", "CreateMultipartUpload"):
        server.conditions.check()
        lacking = server.refusing("UnknownOperationException", "TransactWriteItems")
        with lacking, pytest.raises(ServiceRefusedError, match="UnknownOperation") as refused:
            server.conditions.check()
    assert "Dormouse needs that operation" in refused.value.hint


def test_conditions_are_tried_once_before_the_first_write_that_has_one(server: Server) -> None:
    before = server.conditions.before_write
    before({"Bucket": "b", "Key": "k"})
    assert server.sent == []
    before({"IfNoneMatch": "*"})
    tried = len(server.sent)
    assert tried > 0
    before({"ConditionExpression": "x"})
    before({"TransactItems": []})
    assert len(server.sent) == tried


def test_conditions_are_not_tried_again_where_a_deployment_tried_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As by each process of the local stack; of no other server, and not where one is elsewhere."""
    here, there = "http://127.0.0.1:9", "http://127.0.0.1:10"
    tried: list[str] = []
    monkeypatch.setattr(Conditions, "check", lambda _: tried.append("all"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "test")
    for at, dynamodb, expected in ((here, here, 0), (there, here, 1), (here, there, 1)):
        tried.clear()
        monkeypatch.setenv("AWS_ENDPOINT_URL", here)
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb)
        monkeypatch.setenv(CONDITIONS_TRIED_AT, at)
        conditions = conditions_of(
            NAMES, Settings.from_environment(instance="dev").conditions_tried_at
        )
        conditions.before_write({"IfNoneMatch": "*"})
        assert len(tried) == expected, (at, dynamodb)


def test_conditions_that_are_ignored_are_refused_at_each_write(server: Server) -> None:
    with server.changing("PutObject", without("IfNoneMatch")):
        for _ in range(2):
            with pytest.raises(ServiceRefusedError, match="If-None-Match of PutObject"):
                server.conditions.before_write({"IfNoneMatch": "*"})


def test_services_of_aws_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        server = Server()
        server.conditions.check()
        assert server.sent == []


def test_a_refusal_for_good_is_told_at_once_and_not_as_contention(server: Server) -> None:
    """Of a server without transactions, and of a role without a permission."""
    log = Log("t", DynamoPages(server.dynamodb, NAMES.table("state")), WITHOUT_PAUSES)
    for code in ("UnknownOperationException", "AccessDeniedException", "ValidationException"):
        server.sent.clear()
        refusing = server.refusing(code, "TransactWriteItems")
        with refusing, pytest.raises(ServiceRefusedError, match=code):
            log.append("0" * 32, 0)
        assert server.sent.count("UpdateItem") == 1


def test_every_client_that_writes_to_a_server_not_of_aws_tries_the_conditions_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: Conditions) -> None:
        raise ServiceRefusedError("tried")

    monkeypatch.setattr(Conditions, "check", refuse)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    services = wire(Settings("dev", "123456789012", tmp_path)).services
    table = Table("0123456789abcdef", "letters", LETTERS)
    local = tmp_path / "local"
    local.write_bytes(b"a")
    writes: tuple[Callable[[], object], ...] = (
        lambda: services.storage.put("a", b"a"),
        lambda: services.results.upload("a", local),
        lambda: services.store(table).terminate(),
        lambda: services.publications.replace(table.id, None, PublicationRecord()),
        services.check_conditions,
    )
    for write in writes:
        with pytest.raises(ServiceRefusedError, match="tried"):
            write()
