"""The real functions of an instance on an embedded AWS, and what each asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import boto3
import pytest
from moto.moto_server import threaded_moto_server
from moto.server import ThreadedMotoServer
from moto.sqs.models import sqs_backends
from werkzeug.serving import WSGIRequestHandler

from dormouse.aws import clients, handling
from dormouse.aws.wiring import Wiring, wire
from dormouse.messages.stages import QUEUES
from dormouse.settings import Settings
from dormouse.state.sources import Source
from dormouse.tables.table import Table
from dormouse_cli.local import moto_server
from dormouse_cli.local.resources import SENDER_ID
from dormouse_cli.local.stack import deploy
from dormouse_cli.local.template import read
from tests.support.lambda_context import Context
from tests.support.world import letters, letters_file
from tests.template.conftest import NAMES, QUEUE_OF, REGION, TEMPLATE
from tests.template.iam import Need, needs

_Flow = TypeVar("_Flow", bound="Flow")
STAGE_OF = {queue: stage for stage, queue in QUEUE_OF.items()}

REQUEST_STEP = '"request_step"'
"""Messages that a schedule sends after some seconds: here a test sends them."""


@dataclass
class Flow:
    """The real functions of one instance, run in turn; `requests` has what each asked of AWS.

    Each function has services of its own, as it has a process of its own. Others may act too.
    """

    sqs: Any
    s3: Any
    wirings: dict[str, Wiring] = field(default_factory=dict)
    requests: dict[str, set[Need]] = field(default_factory=dict)
    stage: str | None = None
    urls: dict[str, str] = field(default_factory=dict)

    def see(
        self, params: Mapping[str, Any], model: Any, context: Mapping[str, Any], **_: object
    ) -> None:
        """Note a request; boto3 calls this before each, and before it signs a URL for another.

        A signed URL names no owner of the bucket: its holder would have to send that as a header.
        """
        if self.stage is not None:
            service = model.service_model.service_name
            if service == "s3" and not context.get("is_presign_request"):
                assert params["ExpectedBucketOwner"] == NAMES.account, model.name
            wanted = needs(service, model.name, params)
            self.requests.setdefault(self.stage, set()).update(wanted)

    @contextmanager
    def acting_as(self, stage: str) -> Iterator[None]:
        """Count what is asked of AWS in the block as asked by a function, or by another."""
        self.stage = stage
        try:
            yield
        finally:
            self.stage = None

    def wiring(self) -> Wiring:
        """Return the services of the function that runs, or those of the test itself."""
        name = self.stage or ""
        if name not in self.wirings:
            self.wirings[name] = wire(Settings.from_environment())
        return self.wirings[name]

    def invoke(self, stage: str, event: dict[str, Any]) -> dict[str, Any]:
        handler = import_module(f"functions.{stage}.handler")
        with self.acting_as(stage):
            response: dict[str, Any] = handler.handle(event, Context())
        assert not response.get("batchItemFailures"), f"{stage} failed"
        return response

    def settle(self) -> None:
        """Deliver messages until there are none.

        The embedded AWS runs in this process, and is looked into: to ask each queue, empty or not,
        takes a third of the time of a life.
        """
        while sum(self._deliver(queue) for queue in QUEUES if self._waiting(queue)):
            pass

    def _waiting(self, queue: str) -> int:
        """Return how many messages of a queue can be received."""
        kept = sqs_backends[NAMES.account][REGION].queues[NAMES.queue(queue)]
        waiting: int = kept.approximate_number_of_messages
        return waiting

    def send(self, queue: str, body: str) -> None:
        """Send a message, and do all that follows from it."""
        self.sqs.send_message(QueueUrl=self._url(queue), MessageBody=body)
        self.settle()

    def do(self, queue: str, *bodies: str) -> None:
        """Run the function of a queue once, with messages."""
        sent = {"SenderId": SENDER_ID}
        records = [{"messageId": b, "body": b, "attributes": sent} for b in bodies]
        self.invoke(STAGE_OF[queue], {"Records": records})

    def drop(self, key: str, text: str | bytes) -> Source:
        """Drop a file of letters, or of these bytes; its notification waits."""
        body = text if isinstance(text, bytes) else letters_file(letters(text))
        answer = self.s3.put_object(Bucket=NAMES.ingest_bucket, Key=key, Body=body)
        etag, version = answer["ETag"].strip('"'), answer["VersionId"]
        return Source(NAMES.ingest_bucket, key, etag, len(body), version)

    def lose(self, queue: str) -> None:
        """Lose the messages of a queue."""
        self._delete(queue, self._receive(queue))

    def _deliver(self, queue: str) -> bool:
        messages = self._receive(queue)
        bodies = [m["Body"] for m in messages if REQUEST_STEP not in m["Body"]]
        if bodies:
            self.do(queue, *bodies)
        self._delete(queue, messages)
        return bool(messages)

    def _receive(self, queue: str) -> list[Any]:
        found = self.sqs.receive_message(QueueUrl=self._url(queue), MaxNumberOfMessages=10)
        messages: list[Any] = found.get("Messages", [])
        return messages

    def _delete(self, queue: str, messages: list[Any]) -> None:
        for message in messages:
            self.sqs.delete_message(
                QueueUrl=self._url(queue), ReceiptHandle=message["ReceiptHandle"]
            )

    def _url(self, queue: str) -> str:
        if queue not in self.urls:
            self.urls[queue] = self.sqs.get_queue_url(QueueName=NAMES.queue(queue))["QueueUrl"]
        return self.urls[queue]


def half_of(table: Table) -> str:
    """Return the id of the table that is half deleted beside this one."""
    return f"half{table.id[4:]}"


@contextmanager
def deployed(kind: type[_Flow], **variables: str) -> Iterator[_Flow]:
    """Deploy the instance on an AWS in this process, which ends with the context.

    `variables` are those of the functions' environment besides their names.
    """
    moto_server.make_atomic()
    with pytest.MonkeyPatch.context() as patch:
        dispatch = lambda _: moto_server.Dispatcher()  # noqa: E731
        patch.setattr(threaded_moto_server, "DomainDispatcherApplication", dispatch)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        patch.setattr(WSGIRequestHandler, "disable_nagle_algorithm", True)  # it delays answers
        # conditions of writes are tried on other servers than AWS's, by who may do more there
        patch.setattr("dormouse.aws.clients.is_of_aws", lambda _: True)
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "DORMOUSE_INSTANCE": NAMES.instance,
            "DORMOUSE_ACCOUNT": NAMES.account,
            **variables,
        }.items():
            patch.setenv(name, value)
        clients.session.cache_clear()  # an earlier test may have had other credentials
        deployment = read(TEMPLATE, {"Instance": NAMES.instance}, endpoint)
        deploy(deployment, boto3.Session(), endpoint)
        flow = kind(boto3.Session().client("sqs"), boto3.Session().client("s3"))
        see: Any = flow.see
        clients.session().register("before-parameter-build", see)
        patch.setattr(handling, "wiring", flow.wiring)
        try:
            yield flow
        finally:
            server.stop()
            clients.session.cache_clear()
