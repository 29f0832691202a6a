"""Reads a SAM template into a `Deployment`: translated as AWS would, resolved, and checked.

Called by `stack`. Each resource type is either read here, or left out on purpose (by
`WITHOUT_MEANING`), or refused; so a template never runs with a part silently missing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.intrinsics import Document, References, Resolver
from dormouse_cli.local.plan import (
    Bucket,
    Deployment,
    EventSource,
    Function,
    Json,
    Notification,
    Queue,
    Redrive,
    Schedule,
    Table,
)
from dormouse_cli.local.resource_names import ResourceNames
from dormouse_cli.local.translation import Translated, translate
from dormouse_cli.local.wiring import check_wiring

ACCOUNT = "123456789012"
DEFAULT_REGION = "eu-west-2"

WITHOUT_MEANING = frozenset(
    {
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::CompositeAlarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::EMRServerless::Application",
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

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_RATE_UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
_TABLE_ARGUMENTS = (
    "AttributeDefinitions",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
    "ProvisionedThroughput",
)


def read(
    path: Path, parameters: Mapping[str, str], endpoint_url: str, region: str = DEFAULT_REGION
) -> Deployment:
    """The plan of the template at `path`, whose queue URLs begin with `endpoint_url`.

    `parameters` win over the template's defaults. Raises `TemplateError`, naming the place, for
    what AWS would refuse or the local stack does not know.
    """
    translated = translate(path, parameters, region)
    template = _Template.of(translated, endpoint_url, region)
    deployment = Deployment(
        account=ACCOUNT,
        region=region,
        parameters=translated.parameters,
        buckets=tuple(map(template.bucket, template.of_type("AWS::S3::Bucket"))),
        queues=tuple(map(template.queue, template.of_type("AWS::SQS::Queue"))),
        tables=tuple(map(template.table, template.of_type("AWS::DynamoDB::Table"))),
        functions=tuple(map(template.function, template.of_type("AWS::Lambda::Function"))),
        event_sources=tuple(
            map(template.event_source, template.of_type("AWS::Lambda::EventSourceMapping"))
        ),
        schedules=tuple(template.schedules()),
    )
    _check_all_types_are_known(template)
    check_wiring(deployment)
    return deployment


_READ_HERE = frozenset(
    {
        "AWS::DynamoDB::Table",
        "AWS::Events::Rule",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::S3::Bucket",
        "AWS::SQS::Queue",
        "AWS::Scheduler::Schedule",
    }
)


@dataclass(frozen=True, slots=True)
class _Template:
    """The template's resources that exist under its conditions, read one by one."""

    resources: Mapping[str, Document]
    code: Mapping[str, Path]
    resolver: Resolver
    names: ResourceNames

    @classmethod
    def of(cls, translated: Translated, endpoint_url: str, region: str) -> "_Template":
        pseudo = {
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::Region": region,
            "AWS::StackName": "local",
            "AWS::StackId": f"arn:aws:cloudformation:{region}:{ACCOUNT}:stack/local/local",
            "AWS::URLSuffix": "amazonaws.com",
        }
        resolver: Resolver
        names = ResourceNames(
            translated.resources, pseudo, endpoint_url, lambda value, at: resolver.text(value, at)
        )
        resolver = Resolver(
            {**translated.parameters, **pseudo},
            translated.conditions,
            References(names.ref, names.attribute),
        )
        existing = {
            logical_id: resource
            for logical_id, resource in translated.resources.items()
            if "Condition" not in resource
            or resolver.holds(cast(str, resource["Condition"]), logical_id)
        }
        return cls(existing, translated.code, resolver, names)

    def of_type(self, kind: str) -> list[str]:
        return [name for name, resource in self.resources.items() if resource["Type"] == kind]

    def get(self, logical_id: str, key: str, default: Json = None) -> Json:
        properties = cast(Document, self.resources[logical_id].get("Properties", {}))
        if key not in properties:
            return default
        resolved = self.resolver.resolve(properties[key], f"{logical_id}.{key}")
        return default if resolved is None else resolved

    def number(self, logical_id: str, key: str, default: int) -> int:
        value = self.get(logical_id, key, default)
        try:
            return int(cast(str, value))
        except (TypeError, ValueError) as error:
            where = f"{logical_id}.{key}"
            raise TemplateError(f"{where}: expected a number, found {value!r}") from error

    def arn(self, logical_id: str) -> str:
        return cast(str, self.names.arn(logical_id))

    def bucket(self, logical_id: str) -> Bucket:
        versioning = cast(Document, self.get(logical_id, "VersioningConfiguration", {}))
        lifecycle = cast(Document, self.get(logical_id, "LifecycleConfiguration", {}))
        return Bucket(
            name=self.names.name(logical_id),
            versioned=versioning.get("Status") == "Enabled",
            notifications=tuple(self._notifications(logical_id)),
            lifecycle=tuple(cast(list[Document], lifecycle.get("Rules", []))),
        )

    def _notifications(self, logical_id: str) -> Iterator[Notification]:
        configured = cast(Document, self.get(logical_id, "NotificationConfiguration", {}))
        for kind in configured:
            if kind != "QueueConfigurations":
                raise TemplateError(
                    f"{logical_id}.NotificationConfiguration.{kind}: the local stack sends a "
                    "bucket's events to queues only"
                )
        for entry in cast(list[Document], configured.get("QueueConfigurations", [])):
            filters = cast(dict[str, dict[str, list[dict[str, str]]]], entry.get("Filter", {}))
            rules = {
                rule["Name"].lower(): rule["Value"]
                for rule in filters.get("S3Key", {}).get("Rules", [])
            }
            yield Notification(
                queue_arn=cast(str, entry["Queue"]),
                event=cast(str, entry["Event"]),
                prefix=rules.get("prefix", ""),
                suffix=rules.get("suffix", ""),
            )

    def queue(self, logical_id: str) -> Queue:
        if self.get(logical_id, "FifoQueue"):
            raise TemplateError(f"{logical_id}.FifoQueue: the local stack has standard queues only")
        redrive = cast(dict[str, str] | None, self.get(logical_id, "RedrivePolicy"))
        return Queue(
            name=self.names.name(logical_id),
            arn=self.arn(logical_id),
            visibility_timeout_seconds=self.number(logical_id, "VisibilityTimeout", 30),
            delay_seconds=self.number(logical_id, "DelaySeconds", 0),
            retention_seconds=self.number(logical_id, "MessageRetentionPeriod", 345_600),
            redrive=None
            if redrive is None
            else Redrive(redrive["deadLetterTargetArn"], int(redrive["maxReceiveCount"])),
        )

    def table(self, logical_id: str) -> Table:
        arguments = {key: self.get(logical_id, key) for key in _TABLE_ARGUMENTS}
        ttl = cast(Document, self.get(logical_id, "TimeToLiveSpecification", {}))
        return Table(
            name=self.names.name(logical_id),
            definition={key: value for key, value in arguments.items() if value is not None},
            ttl_attribute=cast(str, ttl["AttributeName"]) if ttl.get("Enabled") else None,
        )

    def function(self, logical_id: str) -> Function:
        environment = cast(Document, self.get(logical_id, "Environment", {}))
        variables = cast(Document, environment.get("Variables", {}))
        where = f"{logical_id}.Environment"
        return Function(
            logical_id=logical_id,
            name=self.names.name(logical_id),
            arn=self.arn(logical_id),
            handler=cast(str, self.get(logical_id, "Handler")),
            code=self._folder(logical_id, "Code"),
            layers=tuple(self._layers(logical_id)),
            timeout_seconds=self.number(logical_id, "Timeout", 3),
            memory_mb=self.number(logical_id, "MemorySize", 128),
            environment={
                name: self.resolver.text(value, f"{where}.{name}")
                for name, value in variables.items()
            },
        )

    def _layers(self, logical_id: str) -> Iterator[Path]:
        own = {self.arn(layer): layer for layer in self.of_type("AWS::Lambda::LayerVersion")}
        for arn in cast(list[str], self.get(logical_id, "Layers", [])):
            if arn in own:  # packages of published layers come from the environment we run in
                yield self._folder(own[arn], "Content")

    def _folder(self, logical_id: str, key: str) -> Path:
        location = cast(dict[str, str], self.get(logical_id, key))
        if location is None or location.get("S3Key") not in self.code:
            raise TemplateError(
                f"{logical_id}.{key}: the local stack runs code of AWS::Serverless functions and "
                "layers that lies in a folder"
            )
        return self.code[location["S3Key"]]

    def event_source(self, logical_id: str) -> EventSource:
        arn = cast(str, self.get(logical_id, "EventSourceArn"))
        if ":sqs:" not in arn:
            raise TemplateError(f"{logical_id}.EventSourceArn: not a queue: {arn}")
        scaling = cast(dict[str, int], self.get(logical_id, "ScalingConfig", {}))
        window = self.number(logical_id, "MaximumBatchingWindowInSeconds", 0)
        batch_size = self.number(logical_id, "BatchSize", 10)
        if batch_size > 10 and window == 0:
            raise TemplateError(
                f"{logical_id}.BatchSize: AWS asks for a batching window of at least 1 second "
                f"when the batch size is over 10, found {batch_size}"
            )
        response_types = cast(list[str], self.get(logical_id, "FunctionResponseTypes", []))
        return EventSource(
            function=cast(str, self.get(logical_id, "FunctionName")).split(":")[-1],
            queue_name=arn.split(":")[-1],
            queue_arn=arn,
            batch_size=batch_size,
            batching_window_seconds=window,
            reports_item_failures="ReportBatchItemFailures" in response_types,
            maximum_concurrency=scaling.get("MaximumConcurrency"),
        )

    def schedules(self) -> Iterator[Schedule]:
        """Rules on event patterns are passed over: nothing here sends the events they wait for."""
        for logical_id in self.of_type("AWS::Events::Rule"):
            expression = self.get(logical_id, "ScheduleExpression")
            targets = cast(list[dict[str, str]], self.get(logical_id, "Targets", []))
            if expression is not None and self.get(logical_id, "State") != "DISABLED":
                for target in targets:
                    yield self._schedule(logical_id, cast(str, expression), target)
        for logical_id in self.of_type("AWS::Scheduler::Schedule"):
            if self.get(logical_id, "State") != "DISABLED":
                yield self._schedule(
                    logical_id,
                    cast(str, self.get(logical_id, "ScheduleExpression")),
                    cast(dict[str, str], self.get(logical_id, "Target")),
                )

    def _schedule(self, logical_id: str, expression: str, target: Mapping[str, str]) -> Schedule:
        rate = _RATE.fullmatch(expression)
        if rate is None:
            raise TemplateError(
                f"{logical_id}.ScheduleExpression: the local stack knows rate(…) only, "
                f"found {expression}"
            )
        if ":lambda:" not in target["Arn"]:
            raise TemplateError(f"{logical_id}: the target is not a function: {target['Arn']}")
        return Schedule(
            name=self.names.name(logical_id),
            arn=self.arn(logical_id),
            function=target["Arn"].split(":")[-1],
            rate_seconds=int(rate[1]) * _RATE_UNIT_SECONDS[rate[2]],
            input=target.get("Input"),
        )


def _check_all_types_are_known(template: _Template) -> None:
    for logical_id, resource in template.resources.items():
        kind = resource["Type"]
        if kind not in _READ_HERE and kind not in WITHOUT_MEANING:
            raise TemplateError(f"{logical_id}: the local stack does not know the type {kind}")
