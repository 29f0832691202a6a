"""A template must run as AWS would deploy it, or be refused by name and place: never half of it."""

from pathlib import Path
from typing import Any

import pytest

from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.plan import Deployment, TemplateError
from dormouse_cli.local.resources import ACCOUNT, Resolver
from dormouse_cli.local.template import announced, read

FOLDER = Path(__file__).parent / "stack"
ENDPOINT = "http://127.0.0.1:1"


def plan(**parameters: str) -> Deployment:
    return read(FOLDER / "template.yaml", parameters, ENDPOINT)


def refused(folder: Path, resources: str) -> str:
    """The message with which a template of these resources is refused."""
    path = folder / "template.yaml"
    path.write_text(f"Transform: AWS::Serverless-2016-10-31\nResources:\n{resources}")
    with pytest.raises(TemplateError) as error:
        read(path, {}, ENDPOINT)
    return str(error.value)


def resolver(**conditions: Any) -> Resolver:
    arns = {("Queue", "Arn"): "arn"}
    parameters = {"Stage": "test", "AWS::Region": "here"}
    mappings: Any = {"Sizes": {"test": {"mb": 512, "zones": ["a", "b"]}}}
    return Resolver(
        parameters,
        conditions,
        mappings,
        ref={"Queue": "queue-url"}.get,
        attribute=lambda resource, name: arns.get((resource, name)),
    )


def test_names_are_those_on_aws() -> None:
    deployment = plan(Instance="mine")
    assert [bucket.name for bucket in deployment.buckets] == [
        f"results-mine-{ACCOUNT}",
        "ingest-mine",
    ]
    assert deployment.function("WorkFunction") == deployment.function("mine-work")


def test_a_queue_of_an_event_source_is_the_one_that_the_bucket_announces_to() -> None:
    deployment = plan()
    (announced_to,) = announced(deployment.buckets[1])
    source = deployment.event_sources[0]
    assert announced_to["Queue"] == source.queue_arn
    assert announced_to["Event"] == "s3:ObjectCreated:*"
    assert "in/" in str(announced_to["Filter"])
    assert (source.function, source.reports_item_failures, source.maximum_concurrency) == (
        "test-work",
        True,
        3,
    )


def test_a_function_finds_its_code_layers_and_variables() -> None:
    function = plan().function("WorkFunction")
    assert function is not None
    assert function.code == FOLDER / "functions" / "echo"
    assert function.layers == (FOLDER / "layer",)
    assert function.environment == {"RESULTS_BUCKET": f"results-test-{ACCOUNT}"}


def test_a_condition_brings_its_resources_and_values() -> None:
    deployment = plan(WithSpare="yes")
    function = deployment.function("WorkFunction")
    assert function is not None
    assert function.environment["SPARE"] == "spare"
    assert [bucket.name for bucket in deployment.buckets][-1] == "local-sparebucket"


def test_the_projects_own_template_is_understood() -> None:
    deployment = read(find_template(), LOCAL_PARAMETERS, ENDPOINT)
    assert {source.function for source in deployment.event_sources} <= {
        function.name for function in deployment.functions
    }
    assert all((function.code / "handler.py").is_file() for function in deployment.functions)


def test_a_laptop_runs_no_more_at_once_than_it_can() -> None:
    limits = [source.maximum_concurrency for source in plan().with_at_most(2).event_sources]
    assert limits == [2, None]


def test_a_schedule_of_a_function_is_read() -> None:
    (schedule,) = plan().schedules
    assert (schedule.function, schedule.rate_seconds) == ("test-work", 300)


def test_a_disabled_event_source_feeds_nothing(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    path = tmp_path / "template.yaml"
    path.write_text(
        "Transform: AWS::Serverless-2016-10-31\n"
        "Resources:\n"
        "  Q: {Type: 'AWS::SQS::Queue'}\n"
        "  F:\n"
        "    Type: AWS::Serverless::Function\n"
        "    Properties:\n"
        "      {CodeUri: code, Handler: a.b, Runtime: python3.13,\n"
        "       Events: {E: {Type: SQS, Properties: {Queue: !GetAtt Q.Arn, Enabled: false}}}}\n"
    )
    assert read(path, {}, ENDPOINT).event_sources == ()


def test_a_parameter_that_the_template_lacks_is_refused() -> None:
    with pytest.raises(TemplateError, match="no parameter Instanse; it has .*Instance"):
        plan(Instanse="mine")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "Stage"}, "test"),
        ({"Fn::Sub": "${Stage}-${Queue.Arn}-${!kept}"}, "test-arn-${kept}"),
        ({"Fn::Sub": ["${a}/${Stage}", {"a": {"Ref": "Queue"}}]}, "queue-url/test"),
        ({"Fn::Join": [":", ["a", {"Ref": "AWS::Region"}]]}, "a:here"),
        ({"Fn::FindInMap": ["Sizes", {"Ref": "Stage"}, "mb"]}, 512),
        ({"Fn::FindInMap": ["Sizes", "test", "zones"]}, ["a", "b"]),
        ({"Fn::If": ["IsTest", "yes", "no"]}, "yes"),
        ({"Fn::If": ["IsOther", "yes", {"Ref": "AWS::NoValue"}]}, None),
        ([1, {"Ref": "AWS::NoValue"}, 2], [1, 2]),
        ({"a": {"Ref": "AWS::NoValue"}, "b": True}, {"b": True}),
    ],
)
def test_intrinsics_mean_what_cloudformation_means(value: Any, expected: Any) -> None:
    is_test = {"Fn::Equals": [{"Ref": "Stage"}, "test"]}
    is_other = {"Fn::And": [{"Condition": "IsTest"}, {"Fn::Not": [{"Condition": "IsTest"}]}]}
    assert resolver(IsTest=is_test, IsOther=is_other).resolve(value, "here") == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [{"Fn::Cidr": []}]}, r"here\.a\[0\]: .* does not know Fn::Cidr"),
        ({"Ref": "Nobody"}, "here: !Ref Nobody names neither"),
        ({"Fn::GetAtt": ["Queue", "Colour"]}, "here: .* does not know !GetAtt Queue.Colour"),
        ({"Fn::Sub": "${Nobody}"}, "here: !Ref Nobody"),
        ({"Fn::FindInMap": ["Sizes", "prod", "mb"]}, "here: !FindInMap .* no key 'prod'"),
        ({"Fn::FindInMap": ["Sizes", "test", "gb"]}, "here: !FindInMap .* no key 'gb'"),
        ({"Fn::If": ["Never", 1, 2]}, "here: there is no condition 'Never'"),
    ],
)
def test_what_cannot_be_resolved_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        resolver().resolve(value, "here")


def test_parameters_that_a_rule_forbids_are_refused_with_its_description() -> None:
    tokens = {"JwtIssuer": "https://login.example"}
    with pytest.raises(TemplateError, match="Rules.TokensHaveAnAudience: JwtIssuer needs Jwt"):
        read(find_template(), {**LOCAL_PARAMETERS, **tokens}, ENDPOINT)


def test_an_unknown_resource_type_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, "  Stream: {Type: 'AWS::Kinesis::Stream'}")
    assert message == "Stream: the local stack does not know the type AWS::Kinesis::Stream"


def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path, "  Q: {Type: [}")


def test_a_function_without_its_folder_is_refused(tmp_path: Path) -> None:
    properties = "{CodeUri: gone, Handler: a.b, Runtime: python3.13}"
    message = refused(
        tmp_path, f"  F: {{Type: 'AWS::Serverless::Function', Properties: {properties}}}"
    )
    assert message.startswith("F.CodeUri: there is no folder")


def test_a_batch_over_ten_without_a_window_is_refused_as_on_aws(tmp_path: Path) -> None:
    message = refused(
        tmp_path,
        "  Q: {Type: 'AWS::SQS::Queue'}\n"
        "  E:\n"
        "    Type: AWS::Lambda::EventSourceMapping\n"
        "    Properties: {EventSourceArn: !GetAtt Q.Arn, FunctionName: f, BatchSize: 11}\n",
    )
    assert message.startswith("E.BatchSize: AWS asks for a batching window")


def test_a_visibility_timeout_shorter_than_the_function_is_refused_as_on_aws(
    tmp_path: Path,
) -> None:
    (tmp_path / "code").mkdir()
    message = refused(
        tmp_path,
        "  Q: {Type: 'AWS::SQS::Queue', Properties: {VisibilityTimeout: 9}}\n"
        "  F:\n"
        "    Type: AWS::Serverless::Function\n"
        "    Properties:\n"
        "      {CodeUri: code, Handler: a.b, Runtime: python3.13, Timeout: 10,\n"
        "       Events: {E: {Type: SQS, Properties: {Queue: !GetAtt Q.Arn}}}}\n",
    )
    assert "visibility timeout of 9 s is less than the timeout of local-F, 10 s" in message


def test_a_schedule_that_is_no_rate_is_refused(tmp_path: Path) -> None:
    message = refused(
        tmp_path,
        "  R:\n"
        "    Type: AWS::Events::Rule\n"
        "    Properties: {ScheduleExpression: 'cron(0 0 * * ? *)', Targets: [{Arn: a, Id: a}]}\n",
    )
    assert message.startswith("R.ScheduleExpression: the local stack knows rate(…) only")
