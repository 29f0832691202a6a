"""Reads a SAM template into a `Deployment`: translated as AWS would, resolved, and checked.

Called by `stack`. Each resource type is either read, or left out on purpose, or refused; so a
template never runs with a part silently missing.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dormouse_cli.local.plan import (
    Deployment,
    EventRule,
    EventSource,
    HttpRoute,
    PlannedFunction,
    PlannedSchedule,
    Stored,
    TemplateError,
)
from dormouse_cli.local.resources import Document, Resolver, Resources, translate

_ANY = "x-amazon-apigateway-any-method"
_INTEGRATION = "x-amazon-apigateway-integration"
_FUNCTION = re.compile(r"/functions/arn:[^/]+:function:([^:/]+)/invocations$")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*(/|/\{[A-Za-z0-9._-]+\+\})?")


def routes(resources: Resources) -> Iterator[HttpRoute]:
    """All routes of HTTP APIs that are events of functions."""
    for logical_id in resources.of_type("AWS::ApiGatewayV2::Api"):
        body = resources.get(logical_id, "Body", {})
        for path, methods in body.get("paths", {}).items():
            if not _PATH.fullmatch(path):
                raise TemplateError(
                    f"{logical_id}: the local stack knows paths with a {{name+}} at their end "
                    f"alone, found {path}"
                )
            for method, operation in methods.items():
                yield _route(logical_id, path, method, operation)


def _route(logical_id: str, path: str, method: str, operation: Document) -> HttpRoute:
    integration = operation.get(_INTEGRATION, {})
    function = _FUNCTION.search(integration.get("uri", ""))
    if function is None:
        raise TemplateError(f"{logical_id}: {path} is not answered by a function")
    if integration.get("payloadFormatVersion") != "2.0":
        raise TemplateError(f"{logical_id}: {path} has another PayloadFormatVersion than 2.0")
    return HttpRoute("ANY" if method == _ANY else method.upper(), path, function[1])


_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_RATE_UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def function(resources: Resources, logical_id: str) -> PlannedFunction:
    """An AWS::Lambda::Function, with its code and layers as folders."""
    environment = resources.get(logical_id, "Environment", {})
    variables = environment.get("Variables", {})
    where = f"{logical_id}.Environment"
    return PlannedFunction(
        logical_id=logical_id,
        name=resources.name(logical_id),
        arn=resources.arn(logical_id),
        handler=resources.get(logical_id, "Handler"),
        code=_folder(resources, logical_id, "Code"),
        layers=tuple(dict.fromkeys(_layers(resources, logical_id))),
        timeout_seconds=resources.number(logical_id, "Timeout", 3),
        memory_mb=resources.number(logical_id, "MemorySize", 128),
        environment={
            name: resources.resolver.text(value, f"{where}.{name}")
            for name, value in variables.items()
        },
    )


def _layers(resources: Resources, logical_id: str) -> Iterator[Path]:
    own = {resources.arn(layer): layer for layer in resources.of_type("AWS::Lambda::LayerVersion")}
    for arn in resources.get(logical_id, "Layers", []):
        if arn in own:  # packages of published layers come from the environment we run in
            yield _folder(resources, own[arn], "Content")


def _folder(resources: Resources, logical_id: str, key: str) -> Path:
    location = resources.get(logical_id, key)
    if location is None or location.get("S3Key") not in resources.code:
        raise TemplateError(
            f"{logical_id}.{key}: the local stack runs code of AWS::Serverless functions and "
            "layers that lies in a folder"
        )
    return resources.code[location["S3Key"]]


def event_sources(resources: Resources) -> Iterator[EventSource]:
    """All enabled event source mappings; of queues only."""
    for logical_id in resources.of_type("AWS::Lambda::EventSourceMapping"):
        if resources.get(logical_id, "Enabled", True) in (True, "true"):
            yield _event_source(resources, logical_id)


def _event_source(resources: Resources, logical_id: str) -> EventSource:
    arn = resources.get(logical_id, "EventSourceArn")
    if ":sqs:" not in arn:
        raise TemplateError(f"{logical_id}.EventSourceArn: not a queue: {arn}")
    scaling = resources.get(logical_id, "ScalingConfig", {})
    window = resources.number(logical_id, "MaximumBatchingWindowInSeconds", 0)
    batch_size = resources.number(logical_id, "BatchSize", 10)
    if batch_size > 10 and window == 0:
        raise TemplateError(
            f"{logical_id}.BatchSize: AWS asks for a batching window of at least 1 second "
            f"when the batch size is over 10, found {batch_size}"
        )
    response_types = resources.get(logical_id, "FunctionResponseTypes", [])
    return EventSource(
        function=resources.get(logical_id, "FunctionName").split(":")[-1],
        queue_name=arn.split(":")[-1],
        queue_arn=arn,
        batch_size=batch_size,
        batching_window_seconds=window,
        reports_item_failures="ReportBatchItemFailures" in response_types,
        maximum_concurrency=int(scaling["MaximumConcurrency"]) if scaling else None,
    )


def schedules(resources: Resources) -> Iterator[PlannedSchedule]:
    """All enabled schedules, which are rules of EventBridge."""
    for logical_id in resources.of_type("AWS::Events::Rule"):
        expression = resources.get(logical_id, "ScheduleExpression")
        targets = resources.get(logical_id, "Targets", [])
        if expression is not None and resources.get(logical_id, "State") != "DISABLED":
            for target in targets:
                yield _schedule(resources, logical_id, expression, target)


def rules(resources: Resources) -> Iterator[EventRule]:
    """All enabled rules on patterns of events; to queues only."""
    for logical_id in resources.of_type("AWS::Events::Rule"):
        pattern = resources.get(logical_id, "EventPattern")
        if pattern is None or resources.get(logical_id, "State") == "DISABLED":
            continue
        targets = resources.get(logical_id, "Targets", [])
        for target in targets:
            if ":sqs:" not in target["Arn"]:
                raise TemplateError(f"{logical_id}: the target is not a queue: {target['Arn']}")
        arns = tuple(target["Arn"] for target in targets)
        yield EventRule(resources.name(logical_id), pattern, arns)


def _schedule(
    resources: Resources, logical_id: str, expression: str, target: Mapping[str, str]
) -> PlannedSchedule:
    rate = _RATE.fullmatch(expression)
    if rate is None:
        raise TemplateError(
            f"{logical_id}.ScheduleExpression: the local stack knows rate(…) only, "
            f"found {expression}"
        )
    if ":lambda:" not in target["Arn"]:
        raise TemplateError(f"{logical_id}: the target is not a function: {target['Arn']}")
    return PlannedSchedule(
        arn=resources.arn(logical_id),
        function=target["Arn"].split(":")[-1],
        rate_seconds=int(rate[1]) * _RATE_UNIT_SECONDS[rate[2]],
        input=target.get("Input"),
    )


def check_rules(rules: Mapping[str, Document], resolver: Resolver) -> None:
    """Raise `TemplateError` with its description for the first assertion that does not hold."""
    for name, rule in rules.items():
        where = f"Rules.{name}"
        if resolver.resolve(rule.get("RuleCondition", True), where) is not True:
            continue
        for assertion in rule["Assertions"]:
            if resolver.resolve(assertion["Assert"], where) is not True:
                raise TemplateError(f"{where}: {assertion['AssertDescription']}")


def stored(resources: Resources, logical_id: str) -> Stored:
    """A bucket, queue, table or Spark application."""
    properties = resources.properties(logical_id)
    return Stored(resources.name(logical_id), resources.arn(logical_id), properties)


def bucket(resources: Resources, logical_id: str) -> Stored:
    """An AWS::S3::Bucket; its events may go to queues only."""
    value = stored(resources, logical_id)
    for kind in value.properties.get("NotificationConfiguration", {}):
        if kind != "QueueConfigurations":
            raise TemplateError(
                f"{logical_id}.NotificationConfiguration.{kind}: the local stack sends a "
                "bucket's events to queues only"
            )
    return value


def announced(bucket: Stored) -> list[dict[str, Any]]:
    """Return which objects of a bucket are announced to which queue, as the template has it."""
    configured: dict[str, list[dict[str, Any]]] = bucket.properties.get(
        "NotificationConfiguration", {}
    )
    return configured.get("QueueConfigurations", [])


def queue(resources: Resources, logical_id: str) -> Stored:
    """An AWS::SQS::Queue; FIFO queues are refused."""
    value = stored(resources, logical_id)
    if value.properties.get("FifoQueue"):
        raise TemplateError(f"{logical_id}.FifoQueue: the local stack has standard queues only")
    return value


def check_wiring(deployment: Deployment) -> None:
    """Refuse what AWS refuses on creation, and would otherwise show up only as a lost message."""
    queues = {queue.arn: queue for queue in deployment.queues}
    named = [
        *(
            (f"queue {queue.name}", queue.properties["RedrivePolicy"]["deadLetterTargetArn"])
            for queue in deployment.queues
            if "RedrivePolicy" in queue.properties
        ),
        *(
            (f"bucket {bucket.name}", each["Queue"])
            for bucket in deployment.buckets
            for each in announced(bucket)
        ),
        *((f"rule {rule.name}", arn) for rule in deployment.rules for arn in rule.queue_arns),
    ]
    for what, arn in named:
        if arn not in queues:
            raise TemplateError(f"{what}: there is no queue {arn}")
    functions = {function.name: function for function in deployment.functions}
    for route in deployment.routes:
        if route.function not in functions:
            raise TemplateError(f"route {route.key}: there is no function {route.function}")
    for source in deployment.event_sources:
        function, fed_by = functions.get(source.function), queues.get(source.queue_arn)
        if function is None or fed_by is None:
            raise TemplateError(
                f"event source {source.queue_name} → {source.function}: one of them does not exist"
            )
        hidden_seconds = int(fed_by.properties.get("VisibilityTimeout", 30))
        if hidden_seconds < function.timeout_seconds:
            raise TemplateError(
                f"queue {fed_by.name}: its visibility timeout of {hidden_seconds} s is less than "
                f"the timeout of {function.name}, {function.timeout_seconds} s"
            )


_KNOWN = frozenset(
    {
        "AWS::ApiGatewayV2::Api",
        "AWS::DynamoDB::Table",
        "AWS::EMRServerless::Application",
        "AWS::Events::Rule",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::S3::Bucket",
        "AWS::SQS::Queue",
        # what follows means nothing here
        "AWS::ApiGatewayV2::Stage",
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::CompositeAlarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::Lambda::EventInvokeConfig",
        "AWS::Lambda::LayerVersion",
        "AWS::Lambda::Permission",
        "AWS::Logs::LogGroup",
        "AWS::Logs::MetricFilter",
        "AWS::Logs::QueryDefinition",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::Subscription",
        "AWS::SNS::Topic",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
    }
)
_Planned = TypeVar("_Planned")


def read(path: Path, parameters: Mapping[str, str], endpoint_url: str) -> Deployment:
    """The plan of the template at `path`, whose queue URLs begin with `endpoint_url`.

    `parameters` win over the template's defaults. Raises `TemplateError`, naming the place, for
    what AWS would refuse or the local stack does not know.
    """
    translated = translate(path, parameters)
    resources = Resources(translated, endpoint_url)
    check_rules(translated.rules, resources.resolver)
    _check_types(resources)

    def each(kind: str, plan: Callable[[Resources, str], _Planned]) -> tuple[_Planned, ...]:
        return tuple(plan(resources, logical_id) for logical_id in resources.of_type(kind))

    deployment = Deployment(
        parameters=translated.parameters,
        buckets=each("AWS::S3::Bucket", bucket),
        queues=each("AWS::SQS::Queue", queue),
        tables=each("AWS::DynamoDB::Table", stored),
        spark_applications=each("AWS::EMRServerless::Application", stored),
        functions=each("AWS::Lambda::Function", function),
        event_sources=tuple(event_sources(resources)),
        schedules=tuple(schedules(resources)),
        rules=tuple(rules(resources)),
        routes=tuple(routes(resources)),
    )
    check_wiring(deployment)
    return deployment


def _check_types(resources: Resources) -> None:
    for logical_id, resource in resources.existing.items():
        kind = resource["Type"]
        if kind not in _KNOWN:
            raise TemplateError(f"{logical_id}: the local stack does not know the type {kind}")
