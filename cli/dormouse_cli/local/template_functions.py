"""Reads functions and what invokes them from a template; called by `template`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.intrinsics import Document
from dormouse_cli.local.plan import EventSource, Function, Rule, Schedule
from dormouse_cli.local.resources import Resources

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_RATE_UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def function(resources: Resources, logical_id: str) -> Function:
    """An AWS::Lambda::Function, with its code and layers as folders."""
    environment = cast(Document, resources.get(logical_id, "Environment", {}))
    variables = cast(Document, environment.get("Variables", {}))
    where = f"{logical_id}.Environment"
    return Function(
        logical_id=logical_id,
        name=resources.name(logical_id),
        arn=resources.arn(logical_id),
        handler=cast(str, resources.get(logical_id, "Handler")),
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
    for arn in cast(list[str], resources.get(logical_id, "Layers", [])):
        if arn in own:  # packages of published layers come from the environment we run in
            yield _folder(resources, own[arn], "Content")


def _folder(resources: Resources, logical_id: str, key: str) -> Path:
    location = cast(dict[str, str], resources.get(logical_id, key))
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
    arn = cast(str, resources.get(logical_id, "EventSourceArn"))
    if ":sqs:" not in arn:
        raise TemplateError(f"{logical_id}.EventSourceArn: not a queue: {arn}")
    scaling = cast(dict[str, str], resources.get(logical_id, "ScalingConfig", {}))
    window = resources.number(logical_id, "MaximumBatchingWindowInSeconds", 0)
    batch_size = resources.number(logical_id, "BatchSize", 10)
    if batch_size > 10 and window == 0:
        raise TemplateError(
            f"{logical_id}.BatchSize: AWS asks for a batching window of at least 1 second "
            f"when the batch size is over 10, found {batch_size}"
        )
    response_types = cast(list[str], resources.get(logical_id, "FunctionResponseTypes", []))
    return EventSource(
        function=cast(str, resources.get(logical_id, "FunctionName")).split(":")[-1],
        queue_name=arn.split(":")[-1],
        queue_arn=arn,
        batch_size=batch_size,
        batching_window_seconds=window,
        reports_item_failures="ReportBatchItemFailures" in response_types,
        maximum_concurrency=int(scaling["MaximumConcurrency"]) if scaling else None,
    )


def schedules(resources: Resources) -> Iterator[Schedule]:
    """All enabled schedules, of EventBridge's rules and of its scheduler."""
    for logical_id in resources.of_type("AWS::Events::Rule"):
        expression = resources.get(logical_id, "ScheduleExpression")
        targets = cast(list[dict[str, str]], resources.get(logical_id, "Targets", []))
        if expression is not None and resources.get(logical_id, "State") != "DISABLED":
            for target in targets:
                yield _schedule(resources, logical_id, cast(str, expression), target)
    for logical_id in resources.of_type("AWS::Scheduler::Schedule"):
        if resources.get(logical_id, "State") != "DISABLED":
            yield _schedule(
                resources,
                logical_id,
                cast(str, resources.get(logical_id, "ScheduleExpression")),
                cast(dict[str, str], resources.get(logical_id, "Target")),
            )


def rules(resources: Resources) -> Iterator[Rule]:
    """All enabled rules on patterns of events; to queues only."""
    for logical_id in resources.of_type("AWS::Events::Rule"):
        pattern = cast(Document | None, resources.get(logical_id, "EventPattern"))
        if pattern is None or resources.get(logical_id, "State") == "DISABLED":
            continue
        targets = cast(list[dict[str, str]], resources.get(logical_id, "Targets", []))
        for target in targets:
            if ":sqs:" not in target["Arn"]:
                raise TemplateError(f"{logical_id}: the target is not a queue: {target['Arn']}")
        arns = tuple(target["Arn"] for target in targets)
        yield Rule(resources.name(logical_id), pattern, arns)


def _schedule(
    resources: Resources, logical_id: str, expression: str, target: Mapping[str, str]
) -> Schedule:
    rate = _RATE.fullmatch(expression)
    if rate is None:
        raise TemplateError(
            f"{logical_id}.ScheduleExpression: the local stack knows rate(…) only, "
            f"found {expression}"
        )
    if ":lambda:" not in target["Arn"]:
        raise TemplateError(f"{logical_id}: the target is not a function: {target['Arn']}")
    return Schedule(
        name=resources.name(logical_id),
        arn=resources.arn(logical_id),
        function=target["Arn"].split(":")[-1],
        rate_seconds=int(rate[1]) * _RATE_UNIT_SECONDS[rate[2]],
        input=target.get("Input"),
    )
