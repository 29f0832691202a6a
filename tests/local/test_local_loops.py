"""Loops of a template mean what they mean on AWS, or are refused by name and place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samcli.lib.cfn_language_extensions.models import TemplateProcessingContext  # type: ignore[import-untyped]
from samcli.lib.cfn_language_extensions.processors import ForEachProcessor  # type: ignore[import-untyped]
from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

from dormouse_cli.local.commands import find_template
from dormouse_cli.local.plan import TemplateError
from dormouse_cli.local.resources import expand_loops
from dormouse_cli.local.template import read

TOPIC = {"Type": "AWS::SNS::Topic"}


def loop(name: str, items: Any, body: Any) -> dict[str, Any]:
    return {f"Fn::ForEach::{name}s": [name, items, body]}


def expanded_by_sam(document: Any) -> Any:
    """Return the template as SAM CLI expands it before it validates, builds and invokes."""
    context = TemplateProcessingContext(fragment=document)
    ForEachProcessor().process_template(context)
    return plain(context.fragment)


def plain(value: Any) -> Any:
    """Return a template without substitutions in which there is nothing to substitute."""
    match value:
        case {"Fn::Sub": str(text)} if "${" not in text:
            return text
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
    return value


def test_the_projects_own_loops_are_expanded_as_sam_expands_them() -> None:
    text = find_template().read_text()
    expanded = expand_loops(yaml_parse(text), "template")
    assert plain(expanded) == expanded_by_sam(yaml_parse(text))
    assert not any(key.startswith("Fn::ForEach") for key in expanded["Resources"])


def test_a_loop_makes_its_body_once_for_each_item_in_order_where_it_is() -> None:
    document = {"A": 1, **loop("Name", ["X", "Y"], {"${Name}Topic": TOPIC}), "B": 2}
    expanded = expand_loops(document, "here")
    assert isinstance(expanded, dict)
    assert list(expanded.items()) == [("A", 1), ("XTopic", TOPIC), ("YTopic", TOPIC), ("B", 2)]


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ({"Ref": "Name"}, "X"),
        ({"Ref": "Names"}, {"Ref": "Names"}),
        ("${Name}-${Other}-${!Name}", "X-${Other}-${!Name}"),
        ({"Fn::Sub": "${Name}Queue"}, "XQueue"),
        ({"Fn::Sub": "${Name}-${AWS::Region}"}, {"Fn::Sub": "X-${AWS::Region}"}),
        ({"Fn::GetAtt": [{"Fn::Sub": "${Name}Queue"}, "Arn"]}, {"Fn::GetAtt": ["XQueue", "Arn"]}),
        ({"Fn::FindInMap": ["M", {"Ref": "Name"}, "k"]}, {"Fn::FindInMap": ["M", "X", "k"]}),
        ([1, True, None, ["${Name}"]], [1, True, None, ["X"]]),
    ],
)
def test_the_item_takes_the_place_of_the_loops_name(written: Any, made: Any) -> None:
    assert expand_loops(loop("Name", ["X"], {"key": written}), "here") == {"key": made}


def test_a_loop_in_a_loop_is_made_for_each_item_of_both() -> None:
    inner = loop("In", ["1", "2"], {"${Out}${In}": "${In}${Out}"})
    expanded = expand_loops(loop("Out", ["A", "B"], inner), "here")
    assert expanded == {"A1": "1A", "A2": "2A", "B1": "1B", "B2": "2B"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (loop("Name", ["X", "X"], {"${Name}T": 1}), r"here\.Fn::ForEach::Names: .* second XT"),
        ({"XT": 1} | loop("Name", ["X"], {"${Name}T": 1}), "there is a second XT"),
        (loop("Name", {"Ref": "Parameter"}, {}), r"here\.Fn::ForEach::Names: a loop is \["),
        (loop("Name", [1], {}), "a loop is"),
        (loop("Name", ["X"], [{}]), "a loop is"),
    ],
)
def test_what_is_no_loop_or_makes_a_name_twice_is_refused_with_its_place(
    document: Any, message: str
) -> None:
    with pytest.raises(TemplateError, match=message):
        expand_loops(document, "here")


@pytest.mark.parametrize(
    "transform",
    ["AWS::Serverless-2016-10-31", "[AWS::Serverless-2016-10-31, AWS::LanguageExtensions]"],
)
def test_loops_that_aws_would_not_expand_are_refused(tmp_path: Path, transform: str) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(
        f"Transform: {transform}\n"
        "Resources:\n"
        "  Fn::ForEach::Names: [Name, [A], {'${Name}T': {Type: 'AWS::SNS::Topic'}}]\n"
    )
    with pytest.raises(TemplateError, match="need AWS::LanguageExtensions as the first Transform"):
        read(path, {}, "http://127.0.0.1:1")


def test_a_value_is_found_in_a_mapping_by_the_item(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(
        "Transform: [AWS::LanguageExtensions, AWS::Serverless-2016-10-31]\n"
        "Mappings: {Queues: {A: {Seconds: 5}, B: {Seconds: 7}}}\n"
        "Resources:\n"
        "  Fn::ForEach::Names:\n"
        "    - Name\n"
        "    - [A, B]\n"
        "    - ${Name}Queue:\n"
        "        Type: AWS::SQS::Queue\n"
        "        Properties:\n"
        "          QueueName: !Sub queue-${Name}\n"
        "          VisibilityTimeout: !FindInMap [Queues, !Ref Name, Seconds]\n"
    )
    queues = read(path, {}, "http://127.0.0.1:1").queues
    found = {queue.name: queue.properties["VisibilityTimeout"] for queue in queues}
    assert found == {"queue-A": 5, "queue-B": 7}
