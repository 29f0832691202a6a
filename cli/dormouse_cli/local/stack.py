"""The local stack as a whole: AWS's services, the template's resources, functions, event sources.

`commands` and the system tests use it as a context manager. When it stops, its buckets, queues and
tables are gone; logs stay in the state folder.
"""

import base64
import json
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from boto3 import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

import dormouse
from dormouse import lifeline
from dormouse.aws.conditions import Conditions
from dormouse.console import is_console, with_console
from dormouse.features.http.calls import guarded
from dormouse.http.loopback import LoopbackServer
from dormouse.http.messages import HttpRequest, HttpResponse, json_response
from dormouse.settings import CONDITIONS_TRIED_AT
from dormouse.stored.paths import InstanceNames
from dormouse.system import TimeOrderedIds
from dormouse_cli.local.event_sources import EventSourcePoller, Watch, run_schedule, unwatched
from dormouse_cli.local.lambda_host import DEFAULT_SLOTS, LambdaHost, Outcome, Sandbox
from dormouse_cli.local.plan import Deployment, HttpRoute, StartError, Stored, TemplateError
from dormouse_cli.local.resources import ACCOUNT, REGION, aws_environment, isolated_session
from dormouse_cli.local.template import announced, read

_log = logging.getLogger(__name__)

_READY = b"listening on "
_MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Has the C library of Linux return the memory of large objects, of whichever thread they were."""
_INHERITED = ("HOME", "JAVA_HOME", "LANG", "PATH")
_PACKAGES = (Path(__file__).resolve().parents[2], Path(dormouse.__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True)
class _Running:
    """What has been started, and is to be ended in reverse."""

    moto: subprocess.Popen[bytes]
    endpoint_url: str
    deployment: Deployment
    host: LambdaHost
    workers: tuple[threading.Thread, ...]
    http: LoopbackServer | None


@dataclass(repr=False)  # it has a token
class LocalStack:
    """Runs a template on this machine between `start` and `stop`, or as a context manager.

    `parameters` win over the template's defaults. AWS answers at `port`, and the HTTP API of the
    template at `http_port`; 0 takes a free one.

    Without `triggers`, functions and Spark jobs run only when they are invoked: no queue, schedule
    or run starts one.

    `revise` is given what the template asks for and AWS's endpoint, and gives what is deployed: for
    tests that want other time-outs, say. `watch` is called with every batch of messages.

    No event source runs more batches at once than `concurrency`, whatever the template says; by
    default as many as this machine has processors, and at least two.
    """

    template: Path
    parameters: Mapping[str, str]
    state_dir: Path
    _: KW_ONLY
    port: int = 0
    http_port: int = 0
    triggers: bool = True
    concurrency: int | None = None
    revise: Callable[[Deployment, str], Deployment] = lambda deployment, _: deployment
    watch: Watch = unwatched
    _http_token: str = field(default_factory=lambda: secrets.token_urlsafe(24), init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _running: _Running | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Let no change of the current folder move the state."""
        self.state_dir = self.state_dir.resolve()

    def __enter__(self) -> Self:
        if self._running is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the stack, whatever has happened."""
        self.stop()

    @property
    def deployment(self) -> Deployment:
        """What is running."""
        return self._started().deployment

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which any AWS client talks to this stack."""
        parts = self._started()
        http = (
            {"DORMOUSE_HTTP_API": parts.http.url, "DORMOUSE_HTTP_TOKEN": self._http_token}
            if parts.http
            else {}
        )
        return {
            **_environment(parts.endpoint_url),
            **http,
            "DORMOUSE_ACCOUNT": ACCOUNT,
            "DORMOUSE_INSTANCE": parts.deployment.parameters.get("Instance", ""),
        }

    def client(self, service: str) -> Any:
        """A boto3 client of this stack."""
        session: Any = isolated_session()  # typed for literal service names only
        return session.client(service, endpoint_url=self._started().endpoint_url)

    def invoke(self, function: str, event: Any) -> Outcome:
        """Run a function, named by its name or logical id, on an event; wait for what it gives."""
        return self._started().host.invoke(function, json.dumps(event).encode())

    def sandboxes(self) -> list[Sandbox]:
        """The function processes that are alive, to be looked at, or to be crashed."""
        return self._started().host.sandboxes()

    def when_aws_ends(self, call: Callable[[], None]) -> None:
        """Call a function, from another thread, when the embedded AWS ends, however it does."""
        lifeline.when_ended(self._started().moto, lambda _: call())

    def start(self) -> None:
        """Start everything. What has been started when a part fails is stopped again."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self._stopping.clear()
        moto, endpoint_url = self._start_moto()
        try:
            plan = read(self.template, self.parameters, endpoint_url)
            plan = with_package(plan, self.template.parent, self.state_dir / "spark-package")
            if not self.triggers:
                plan = replace(plan, event_sources=(), schedules=())
            most = self.concurrency or max(DEFAULT_SLOTS, os.cpu_count() or 0)
            deployment = self.revise(plan.with_at_most(most), endpoint_url)
            deploy(deployment, isolated_session(), endpoint_url)
            environment = {**inherited(), **_environment(endpoint_url)}
            host = LambdaHost(deployment, environment, self.state_dir)
            workers = self._workers(deployment, host, endpoint_url)
            http = self._http_server(deployment, host)
        except BaseException:
            lifeline.kill(moto)
            raise
        self._running = _Running(moto, endpoint_url, deployment, host, workers, http)
        for worker in workers:
            worker.start()
        if http is not None:
            http.start()

    def stop(self) -> None:
        """End every process of the stack. Does nothing when it is not running."""
        running, self._running = self._running, None
        if running is None:
            return
        self._stopping.set()
        if running.http is not None:
            running.http.close()
        running.host.close()
        lifeline.kill(running.moto)  # ends the long polls, for which the workers may be waiting
        for worker in running.workers:
            worker.join()
        shutil.rmtree(self._objects, ignore_errors=True)

    @property
    def _objects(self) -> Path:
        return self.state_dir / "objects"

    def _started(self) -> _Running:
        if self._running is None:
            raise StartError("the local stack is not running")
        return self._running

    def _start_moto(self) -> tuple[subprocess.Popen[bytes], str]:
        _check_port(self.port)
        logs = self.state_dir / "logs"
        logs.mkdir(exist_ok=True)
        spark_code = self.template.resolve().parent / "spark"
        with (logs / "aws.log").open("ab") as log:
            moto = lifeline.start(
                "dormouse_cli.local.moto_server",
                [str(self.port), str(self._objects), *([str(spark_code)] * self.triggers)],
                cwd=self.state_dir,
                environment={
                    **inherited(),
                    **_MALLOC,
                    "PYTHONPATH": os.pathsep.join(map(str, _PACKAGES)),
                },
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert moto.stdout is not None
        line = moto.stdout.readline()
        if not line.startswith(_READY):
            lifeline.kill(moto)
            raise StartError(
                f"the embedded AWS did not start on port {self.port}: see {logs / 'aws.log'}"
            )
        return moto, f"http://127.0.0.1:{int(line.removeprefix(_READY))}"

    def _http_server(self, deployment: Deployment, host: LambdaHost) -> LoopbackServer | None:
        """Return the server of the routes; None without routes."""
        if not deployment.routes:
            return None
        answer = with_console(HttpApi(deployment.routes, host.invoke).answer)
        door = guarded(answer, self._http_token, is_open=_is_open)
        return LoopbackServer(door, self.http_port)

    def _workers(
        self, deployment: Deployment, host: LambdaHost, endpoint_url: str
    ) -> tuple[threading.Thread, ...]:
        calls = 1 + sum(
            source.maximum_concurrency or DEFAULT_SLOTS for source in deployment.event_sources
        )
        config = Config(
            retries={"total_max_attempts": 1},
            max_pool_connections=calls + len(deployment.event_sources),
        )
        sqs: Any = isolated_session().client("sqs", endpoint_url=endpoint_url, config=config)
        pollers = (
            EventSourcePoller(source, sqs, host.invoke, self._stopping, self.watch)
            for source in deployment.event_sources
        )
        timers = (
            _thread(run_schedule, schedule, host.invoke, self._stopping)
            for schedule in deployment.schedules
        )
        return (*pollers, *timers, _thread(host.end_idle_until, self._stopping))


def _thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    return threading.Thread(target=target, args=arguments, daemon=True)


def _is_open(path: str) -> bool:
    """Return whether a path needs no token: engines that ask the Iceberg catalog have none to send,
    and the page of the console learns it from its address.
    """
    return path.startswith("/iceberg/") or is_console(path)


def _check_port(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise StartError(
            f"port {port} cannot be used: {error.strerror}",
            hint="name another one by --port, or leave it out to take a free one",
        ) from error


def _environment(endpoint_url: str) -> dict[str, str]:
    """Return the variables of processes of a stack that is deployed, which tried the conditions of
    writes there: they need not.
    """
    return {**aws_environment(endpoint_url), CONDITIONS_TRIED_AT: endpoint_url}


def inherited() -> dict[str, str]:
    """The few variables of this process that the stack's processes may see.

    The interpreter's own folder comes first on the path: its tools are of the same version.
    """
    variables = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    folders = (str(Path(sys.executable).parent), variables.get("PATH", os.defpath))
    return {**variables, "PATH": os.pathsep.join(folders)}


_OF_QUEUES = ("DelaySeconds", "MessageRetentionPeriod", "RedrivePolicy", "VisibilityTimeout")
_OF_TABLES = ("AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema")
_DAYS = {
    "NoncurrentVersionExpiration": "NoncurrentDays",
    "AbortIncompleteMultipartUpload": "DaysAfterInitiation",
}


def deploy(deployment: Deployment, session: Session, endpoint_url: str) -> None:
    """Create everything the deployment names, on an empty account.

    Raises `TemplateError` for a resource that AWS's API refuses, and ServiceRefusedError if
    conditions of writes are ignored.
    """
    sqs: Any = session.client("sqs", endpoint_url=endpoint_url)
    s3: Any = session.client("s3", endpoint_url=endpoint_url)
    dynamodb: Any = session.client("dynamodb", endpoint_url=endpoint_url)
    with _refusals_of("the queues"):
        _create_queues(sqs, deployment.queues)
    for table in deployment.tables:
        with _refusals_of(f"table {table.name}"):
            _create_table(dynamodb, table)
    for bucket in deployment.buckets:
        with _refusals_of(f"bucket {bucket.name}"):
            _create_bucket(s3, bucket)
    names = InstanceNames(deployment.parameters.get("Instance", ""), ACCOUNT)
    if names.table("state") in {table.name for table in deployment.tables}:
        Conditions(s3, dynamodb, names, TimeOrderedIds().new).check()
    emr: Any = session.client("emr-serverless", endpoint_url=endpoint_url)
    for application in deployment.spark_applications:
        with _refusals_of(f"application {application.name}"):
            emr.create_application(
                name=application.name,
                releaseLabel=application.properties["ReleaseLabel"],
                type="SPARK",
            )
    events: Any = session.client("events", endpoint_url=endpoint_url)
    for rule in deployment.rules:
        with _refusals_of(f"rule {rule.name}"):
            events.put_rule(Name=rule.name, EventPattern=json.dumps(rule.pattern))
            targets = [{"Id": str(n), "Arn": arn} for n, arn in enumerate(rule.queue_arns)]
            events.put_targets(Rule=rule.name, Targets=targets)


@contextmanager
def _refusals_of(what: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise TemplateError(f"AWS refuses {what}: {error}") from error


def _create_queues(sqs: Any, queues: tuple[Stored, ...]) -> None:
    # A dead-letter queue must exist before the queue that names it, whatever the template's order.
    for queue in sorted(queues, key=lambda queue: "RedrivePolicy" in queue.properties):
        attributes = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in queue.properties.items()
            if name in _OF_QUEUES
        }
        sqs.create_queue(QueueName=queue.name, Attributes=attributes)


def _create_table(dynamodb: Any, table: Stored) -> None:
    settings = {name: table.properties[name] for name in _OF_TABLES if name in table.properties}
    dynamodb.create_table(TableName=table.name, **settings)
    if lifetime := table.properties.get("TimeToLiveSpecification"):
        dynamodb.update_time_to_live(TableName=table.name, TimeToLiveSpecification=lifetime)


def _create_bucket(s3: Any, bucket: Stored) -> None:
    name, properties = bucket.name, bucket.properties
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    if versioning := properties.get("VersioningConfiguration"):
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=versioning)
    if lifecycle := properties.get("LifecycleConfiguration"):
        rules = [_lifecycle_rule(rule) for rule in lifecycle["Rules"]]
        s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": rules})
    if configurations := [_queue_configuration(each) for each in announced(bucket)]:
        s3.put_bucket_notification_configuration(
            Bucket=name, NotificationConfiguration={"QueueConfigurations": configurations}
        )


def _queue_configuration(announced: dict[str, Any]) -> dict[str, object]:
    """CloudFormation's form of a notification, as S3's API wants it."""
    rules = announced.get("Filter", {}).get("S3Key", {}).get("Rules", [])
    filters = {"Filter": {"Key": {"FilterRules": rules}}} if rules else {}
    return {"QueueArn": announced["Queue"], "Events": [announced["Event"]], **filters}


def _lifecycle_rule(rule: dict[str, Any]) -> dict[str, object]:
    """CloudFormation's form of a rule, as S3's API wants it."""
    form = {"Status": rule["Status"], "Filter": _filter(rule)}
    if "Id" in rule:
        form["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        form["Expiration"] = {"Days": int(rule["ExpirationInDays"])}
    for name, days in _DAYS.items():
        if name in rule:
            form[name] = {days: int(rule[name][days])}
    if "Transitions" in rule:
        moves = [(each["StorageClass"], each["TransitionInDays"]) for each in rule["Transitions"]]
        form["Transitions"] = [{"StorageClass": to, "Days": int(days)} for to, days in moves]
    return form


def _filter(rule: dict[str, Any]) -> dict[str, object]:
    prefix = {"Prefix": rule.get("Prefix", "")}
    if "TagFilters" not in rule:
        return prefix
    least_bytes = int(rule["ObjectSizeGreaterThan"])
    return {"And": {**prefix, "Tags": rule["TagFilters"], "ObjectSizeGreaterThan": least_bytes}}


# The package of Spark jobs that `sam build` makes, for functions that are to bring it. It has the
# library, but none of what that needs: runs take it from this environment.


PACKAGE_VARIABLE = "DORMOUSE_SPARK_PACKAGE"
"""The environment variable with the folder of the package; on AWS that is in a layer."""


def with_package(deployment: Deployment, project: Path, folder: Path) -> Deployment:
    """Return the deployment with a package, made in `folder`, for each function that names one.
    Raises StartError: the package cannot be made from the project.
    """
    if not any(PACKAGE_VARIABLE in function.environment for function in deployment.functions):
        return deployment
    _make_package(project, folder)
    functions = tuple(
        replace(function, environment={**function.environment, PACKAGE_VARIABLE: str(folder)})
        if PACKAGE_VARIABLE in function.environment
        else function
        for function in deployment.functions
    )
    return replace(deployment, functions=functions)


def _make_package(project: Path, folder: Path) -> None:
    shared, environment = project / "shared", folder.with_name(f"{folder.name}-environment")
    for target in (folder, environment):
        shutil.rmtree(target, ignore_errors=True)
    library = Path(dormouse.__file__).parent
    shutil.copytree(library, environment / library.name)
    process = subprocess.run(
        [sys.executable, shared / "pack_spark.py", environment, project / "spark", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(environment)
    if process.returncode:
        raise StartError(f"the package of Spark jobs cannot be made: {process.stderr.strip()}")


MOST_RETURNED_BYTES = 6 * 1024 * 1024
"""How long what a function returns may be."""
_HOST = "127.0.0.1"
CALLER_ARN = f"arn:aws:iam::{ACCOUNT}:user/local"
"""The user that every caller is."""

Invoke = Callable[[str, bytes], Outcome]
"""Runs a function, by its name, on an event."""


@dataclass(frozen=True, slots=True)
class HttpApi:
    """Answers requests by the functions of its routes, as an HTTP API of AWS does.

    Nobody is asked for a signature: every caller is the user ``local`` of the stack's account.
    """

    routes: Sequence[HttpRoute]
    invoke: Invoke

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request by the function of the most specific route; 404 if there is none."""
        fitting = [route for route in self.routes if _fits(route, request)]
        if not fitting:
            return json_response(404, {"message": "Not Found"})
        # as AWS chooses: a whole path, then the longest beginning, then a method
        route = max(fitting, key=lambda r: ("{" not in r.path, len(r.path), r.method != "ANY"))
        event = event_of(request, route, str(uuid.uuid4()), time.time())
        outcome = self.invoke(route.function, json.dumps(event).encode())
        if outcome.failed or len(outcome.payload) > MOST_RETURNED_BYTES:
            return json_response(500, {"message": "Internal Server Error"})
        return response_of(json.loads(outcome.payload))


def _fits(route: HttpRoute, request: HttpRequest) -> bool:
    if route.method not in ("ANY", request.method):
        return False
    before, is_open, _ = route.path.partition("{")
    if is_open:
        return request.path.startswith(before) and len(request.path) > len(before)
    return request.path == route.path


def event_of(request: HttpRequest, route: HttpRoute, request_id: str, now: float) -> dict[str, Any]:
    """Return the event that AWS makes of a request."""
    before, is_open, name = route.path.partition("{")
    is_text = _is_text(request.body)
    body = request.body.decode() if is_text else base64.b64encode(request.body).decode()
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route.key,
        "rawPath": request.path,
        "rawQueryString": request.query_string,
        "headers": dict(request.headers),
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "local",
            "authorizer": {"iam": {"accountId": ACCOUNT, "userArn": CALLER_ARN}},
            "domainName": _HOST,
            "domainPrefix": "local",
            "http": {
                "method": request.method,
                "path": request.path,
                "protocol": "HTTP/1.1",
                "sourceIp": _HOST,
                "userAgent": request.headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": route.key,
            "stage": "$default",
            "time": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S %z"),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": not is_text,
    }
    optional = {
        "queryStringParameters": dict(request.query),
        "pathParameters": {name.rstrip("+}"): request.path[len(before) :]} if is_open else {},
        "body": body,
    }
    return event | {key: value for key, value in optional.items() if value}


def response_of(answer: Any) -> HttpResponse:
    """Return the response that AWS makes of what a function returned: without a status, that is the
    body.
    """
    if not isinstance(answer, dict) or "statusCode" not in answer:
        return json_response(200, answer)
    body = str(answer.get("body", ""))
    content = base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode()
    headers = {name.lower(): str(value) for name, value in answer.get("headers", {}).items()}
    return HttpResponse(
        int(answer["statusCode"]), {"content-type": "text/plain", **headers}, content
    )


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
