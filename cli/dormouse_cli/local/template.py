"""Reads a SAM template into a `Deployment`: translated as AWS would, resolved, and checked.

Called by `stack`. Each resource type is either read, or left out on purpose (by `WITHOUT_MEANING`),
or refused; so a template never runs with a part silently missing.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.plan import Deployment
from dormouse_cli.local.resources import ACCOUNT, Resources
from dormouse_cli.local.sessions import DEFAULT_REGION
from dormouse_cli.local.template_apis import routes, socket_function
from dormouse_cli.local.template_functions import event_sources, function, rules, schedules
from dormouse_cli.local.template_rules import check_rules
from dormouse_cli.local.template_storage import bucket, queue, spark_application, table
from dormouse_cli.local.translation import translate
from dormouse_cli.local.wiring import check_wiring

_READ = frozenset(
    {
        "AWS::ApiGatewayV2::Api",
        "AWS::ApiGatewayV2::Integration",
        "AWS::ApiGatewayV2::Route",
        "AWS::DynamoDB::Table",
        "AWS::EMRServerless::Application",
        "AWS::Events::Rule",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::S3::Bucket",
        "AWS::SQS::Queue",
        "AWS::Scheduler::Schedule",
    }
)

WITHOUT_MEANING = frozenset(
    {
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


def read(
    path: Path, parameters: Mapping[str, str], endpoint_url: str, region: str = DEFAULT_REGION
) -> Deployment:
    """The plan of the template at `path`, whose queue URLs begin with `endpoint_url`.

    `parameters` win over the template's defaults. Raises `TemplateError`, naming the place, for
    what AWS would refuse or the local stack does not know.
    """
    translated = translate(path, parameters, region)
    resources = Resources.of(translated, endpoint_url, region)
    check_rules(translated.rules, resources.resolver)
    _check_types(resources)

    def each(kind: str, plan: Callable[[Resources, str], _Planned]) -> tuple[_Planned, ...]:
        return tuple(plan(resources, logical_id) for logical_id in resources.of_type(kind))

    deployment = Deployment(
        account=ACCOUNT,
        region=region,
        parameters=translated.parameters,
        buckets=each("AWS::S3::Bucket", bucket),
        queues=each("AWS::SQS::Queue", queue),
        tables=each("AWS::DynamoDB::Table", table),
        spark_applications=each("AWS::EMRServerless::Application", spark_application),
        functions=each("AWS::Lambda::Function", function),
        event_sources=tuple(event_sources(resources)),
        schedules=tuple(schedules(resources)),
        rules=tuple(rules(resources)),
        routes=tuple(routes(resources)),
        socket_function=socket_function(resources),
    )
    check_wiring(deployment)
    return deployment


def _check_types(resources: Resources) -> None:
    for logical_id, resource in resources.existing.items():
        kind = resource["Type"]
        if kind not in _READ and kind not in WITHOUT_MEANING:
            raise TemplateError(f"{logical_id}: the local stack does not know the type {kind}")
