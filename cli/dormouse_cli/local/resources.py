"""A template resolved: its loops, the translation by AWS's translator, conditions and names."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import boto3
import yaml
from botocore.config import Config
from botocore.session import Session

from dormouse_cli.local.plan import TemplateError

Document = dict[str, Any]
NO_VALUE = "AWS::NoValue"
_PLACEHOLDER = re.compile(r"\$\{(!?)([^}]+)\}")


_NOTHING = object()
"""The value of AWS::NoValue: the property or item it stands for is left out."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """Turns a template's values into plain ones, only where one is really read.

    What it does not know it refuses, with the place (`where`) of the value: what was silently
    dropped would show up as a wrong name somewhere else. `parameters` include the pseudo
    parameters, such as `AWS::Region`; `ref` and `attribute` say what `Ref` and `Fn::GetAtt` of
    resources mean, None for what is unknown.
    """

    parameters: Mapping[str, str]
    conditions: Mapping[str, Any]
    mappings: Mapping[str, Any]
    ref: Callable[[str], str | None]
    attribute: Callable[[str, str], str | None]

    def resolve(self, value: Any, where: str) -> Any:
        """The plain value; `None` where AWS::NoValue takes the value away."""
        result = self._resolve(value, where)
        return None if result is _NOTHING else result

    def text(self, value: Any, where: str) -> str:
        """The plain value as CloudFormation writes it into a string."""
        result = self.resolve(value, where)
        if isinstance(result, bool):
            return "true" if result else "false"
        if isinstance(result, str | int | float):
            return str(result)
        raise TemplateError(f"{where}: expected a text, found {result!r}")

    def holds(self, condition: str, where: str) -> bool:
        """Whether the template's condition of that name holds."""
        if condition not in self.conditions:
            raise TemplateError(f"{where}: there is no condition {condition!r}")
        return self.resolve(self.conditions[condition], f"Conditions.{condition}") is True

    def _resolve(self, value: Any, where: str) -> Any:
        if isinstance(value, list):
            items = [self._resolve(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return [item for item in items if item is not _NOTHING]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, argument = next(iter(value.items()))
            is_condition = name == "Condition" and isinstance(argument, str)
            if name == "Ref" or name.startswith("Fn::") or is_condition:
                return self._call(name, argument, where)
        pairs = {key: self._resolve(item, f"{where}.{key}") for key, item in value.items()}
        return {key: item for key, item in pairs.items() if item is not _NOTHING}

    def _call(self, name: str, argument: Any, where: str) -> Any:
        match name:
            case "Ref":
                return self._ref(argument, where)
            case "Fn::GetAtt":
                return self._get_att(argument, where)
            case "Fn::FindInMap":
                return self._find_in_map(argument, where)
            case "Fn::Sub":
                return self._sub(argument, where)
            case "Fn::Join":
                separator, items = argument
                parts: Any = self.resolve(items, where)
                return str(separator).join(self.text(part, where) for part in parts)
            case "Fn::If":
                condition, then, otherwise = argument
                return self._resolve(then if self.holds(condition, where) else otherwise, where)
            case "Fn::Equals":
                left, right = argument
                return self.text(left, where) == self.text(right, where)
            case "Fn::And":
                return all(self.resolve(item, where) is True for item in argument)
            case "Fn::Not":
                return self.resolve(argument[0], where) is not True
            case "Fn::EachMemberEquals":
                members, expected = (self.resolve(item, where) for item in argument)
                # a parameter that is a list has commas
                listed: Any = members.split(",") if isinstance(members, str) else members
                return all(member == expected for member in listed)
            case "Condition":
                return self.holds(argument, where)
        raise TemplateError(f"{where}: the local stack does not know {name}")

    def _ref(self, name: str, where: str) -> Any:
        if name == NO_VALUE:
            return _NOTHING
        if name in self.parameters:
            return self.parameters[name]
        value = self.ref(name)
        if value is None:
            raise TemplateError(f"{where}: !Ref {name} names neither a parameter nor a resource")
        return value

    def _get_att(self, argument: str | list[str], where: str) -> str:
        path = argument.split(".") if isinstance(argument, str) else argument
        resource, attribute = path[0], ".".join(path[1:])
        value = self.attribute(resource, attribute)
        if value is None:
            raise TemplateError(
                f"{where}: the local stack does not know !GetAtt {resource}.{attribute}"
            )
        return value

    def _sub(self, argument: Any, where: str) -> str:
        pattern, own = argument if isinstance(argument, list) else (argument, {})

        def replacement(match: re.Match[str]) -> str:
            literally, name = match.groups()
            if literally:
                return f"${{{name}}}"
            if name in own:
                return self.text(own[name], where)
            intrinsic = "Fn::GetAtt" if "." in name else "Ref"
            return self.text({intrinsic: name}, where)

        return _PLACEHOLDER.sub(replacement, pattern)

    def _find_in_map(self, argument: list[Any], where: str) -> Any:
        value = self.mappings
        for part in argument:
            key = self.text(part, where)
            if not isinstance(value, dict) or key not in value:
                raise TemplateError(f"{where}: !FindInMap {argument} names nothing: no key {key!r}")
            value = value[key]
        return value


STACK = "local"

_KINDS = {
    "AWS::CloudWatch::Alarm": ("AlarmName", "cloudwatch:{region}:{account}:alarm:{name}"),
    "AWS::DynamoDB::Table": ("TableName", "dynamodb:{region}:{account}:table/{name}"),
    "AWS::EMRServerless::Application": (
        "Name",
        "emr-serverless:{region}:{account}:/applications/{name}",
    ),
    "AWS::Events::Rule": ("Name", "events:{region}:{account}:rule/{name}"),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName", "iam::{account}:policy/{name}"),
    "AWS::IAM::Role": ("RoleName", "iam::{account}:role/{name}"),
    "AWS::Lambda::Function": ("FunctionName", "lambda:{region}:{account}:function:{name}"),
    "AWS::Lambda::LayerVersion": ("LayerName", "lambda:{region}:{account}:layer:{name}:1"),
    "AWS::Logs::LogGroup": ("LogGroupName", "logs:{region}:{account}:log-group:{name}:*"),
    "AWS::S3::Bucket": ("BucketName", "s3:::{name}"),
    "AWS::SNS::Topic": ("TopicName", "sns:{region}:{account}:{name}"),
    "AWS::SQS::Queue": ("QueueName", "sqs:{region}:{account}:{name}"),
}
"""The property that names a resource of each type, and its ARN after ``arn:aws:``."""
SENDER_ID = "AIDAIT2UOQQY3AUEKVGXU"
"""The sender of all messages in queues of moto, whichever role has sent them."""
_REF_IS_ARN = ("AWS::IAM::ManagedPolicy", "AWS::Lambda::LayerVersion", "AWS::SNS::Topic")
_NAME_ATTRIBUTES = (
    ("AWS::SQS::Queue", "QueueName"),
    ("AWS::SNS::Topic", "TopicName"),
    ("AWS::EMRServerless::Application", "ApplicationId"),
)


# The loops of a template (`Fn::ForEach`), which AWS expands before anything else. The item of a
# loop replaces `!Ref Name`, and `${Name}` in every text of the body. A `!Sub` with nothing left to
# replace becomes its text, as references need a plain name. The items must be written out: what
# AWS looks up while it deploys is unknown here.

_FOR_EACH = "Fn::ForEach::"


def has_loops(value: Any) -> bool:
    """Return whether there is a loop in a part of a template."""
    if isinstance(value, list):
        return any(map(has_loops, value))
    if not isinstance(value, dict):
        return False
    return any(key.startswith(_FOR_EACH) or has_loops(item) for key, item in value.items())


def expand_loops(value: Any, where: str) -> Any:
    """Return a part of a template with all its loops expanded; `where` is its place."""
    if isinstance(value, list):
        return [expand_loops(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    expanded: dict[str, Any] = {}
    for key, item in value.items():
        place = f"{where}.{key}"
        is_loop = key.startswith(_FOR_EACH)
        bodies = _bodies(item, place) if is_loop else [{key: expand_loops(item, place)}]
        for body in bodies:
            if twice := expanded.keys() & body.keys():
                raise TemplateError(f"{place}: there is a second {', '.join(sorted(twice))}")
            expanded |= body
    return expanded


def _bodies(loop: Any, where: str) -> Iterator[dict[str, Any]]:
    """Yield the body of a loop once for each item, with the loops in it expanded."""
    match loop:
        case [str(name), list(items), dict(body)] if all(isinstance(item, str) for item in items):
            for item in items:
                yield expand_loops(_filled(body, name, item), where)
        case _:
            raise TemplateError(f"{where}: a loop is [name, [texts], {{keys: values}}]")


def _filled(value: Any, name: str, item: str) -> Any:
    """Return a part of a loop's body with the item in place of the loop's name."""
    if isinstance(value, str):
        return value.replace(f"${{{name}}}", item)
    if isinstance(value, list):
        return [_filled(part, name, item) for part in value]
    if not isinstance(value, dict):
        return value
    if value == {"Ref": name}:
        return item
    filled = {_filled(k, name, item): _filled(v, name, item) for k, v in value.items()}
    match filled:
        case {"Fn::Sub": str(text)} if "${" not in text:
            return text
    return filled


ACCESS_KEY_ID = SECRET_ACCESS_KEY = "local"
ACCOUNT, REGION = "123456789012", "eu-west-2"
"""Of the local stack. The account is the one of moto."""


def aws_environment(endpoint_url: str) -> dict[str, str]:
    """The variables with which a process talks to the local stack, and to nothing else."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_REGION": REGION,
    }


def isolated_session() -> boto3.Session:
    """A session with the local stack's credentials, blind to the environment and to `~/.aws`:
    nothing there may break the local stack, or lead it to a real account.
    """
    nowhere = (None, None, os.devnull, None)
    core = Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": nowhere,
            "credentials_file": nowhere,
        }
    )
    core.set_config_variable("region", REGION)
    core.set_default_client_config(Config(proxies={}))
    core.set_credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY)
    return boto3.Session(botocore_session=core)


_LOOPS = "AWS::LanguageExtensions"
_CODE_PROPERTIES = {
    "AWS::Serverless::Function": ("Function", "CodeUri"),
    "AWS::Serverless::LayerVersion": ("LayerVersion", "ContentUri"),
}


@dataclass(frozen=True, slots=True)
class Translated:
    """A CloudFormation template, and where the code of its functions and layers lies.

    `code` is keyed by the logical ids of the SAM template, which the translated resources carry as
    the S3 key of their code.
    """

    resources: Mapping[str, Document]
    mappings: Mapping[str, Any]
    conditions: Mapping[str, Any]
    rules: Mapping[str, Document]
    parameters: Mapping[str, str]
    code: Mapping[str, Path]


def translate(path: Path, overrides: Mapping[str, str]) -> Translated:
    """Read and translate the template; `overrides` win over the parameters' defaults."""
    # The translator takes long to import.
    from samtranslator.model.exceptions import InvalidDocumentException  # type: ignore[import-untyped]
    from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]
    from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
    from samtranslator.utils.py27hash_fix import (  # type: ignore[import-untyped]
        to_py27_compatible_template,
        undo_mark_unicode_str_in_template,
    )

    document = load(path)
    parameters = _parameters(document, overrides)
    code = _take_code(document, path.parent)
    values = dict(parameters)
    to_py27_compatible_template(document, values)
    translator = Translator(None, Parser(), boto_session=isolated_session())
    try:
        translated = translator.translate(document, values, get_managed_policy_map=dict)
    except InvalidDocumentException as error:
        causes = "; ".join(cause.message for cause in error.causes)
        raise TemplateError(f"{path} is not a valid SAM template: {causes}") from error
    result = undo_mark_unicode_str_in_template(translated)
    return Translated(
        resources=result["Resources"],
        mappings=result.get("Mappings", {}),
        conditions=result.get("Conditions", {}),
        rules=document.get("Rules", {}),
        parameters=parameters,
        code=code,
    )


def load(path: Path) -> Document:
    """Return the template as it is written, with its loops expanded if AWS would expand them."""
    from samtranslator.yaml_helper import intrinsics_multi_constructor  # type: ignore[import-untyped]

    # Of its own, or any YAML read later could have tags; the one in C takes a third of the time.
    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = cast(type[yaml.SafeLoader], type("Loader", (fast,), {}))
    loader.add_multi_constructor("!", intrinsics_multi_constructor)
    try:
        document: Document = yaml.load(path.read_text(), loader)
    except (OSError, yaml.YAMLError) as error:
        raise TemplateError(f"the template {path} cannot be read: {error}") from error
    transforms = document.get("Transform")
    transforms = transforms if isinstance(transforms, list) else [transforms]
    if transforms[:1] == [_LOOPS]:
        document = expand_loops(document, path.name)
    elif has_loops(document):
        raise TemplateError(f"{path}: loops need {_LOOPS} as the first Transform")
    return document


def _parameters(document: Document, overrides: Mapping[str, str]) -> dict[str, str]:
    declared = document.get("Parameters", {})
    unknown = sorted(set(overrides) - set(declared))
    if unknown:
        raise TemplateError(
            f"the template has no parameter {', '.join(unknown)}; "
            f"it has {', '.join(sorted(declared)) or 'none'}"
        )
    values = {name: str(of["Default"]) for name, of in declared.items() if "Default" in of}
    values.update(overrides)
    missing = sorted(set(declared) - set(values))
    if missing:
        raise TemplateError(f"the parameters {', '.join(missing)} have no default: give a value")
    return values


def _take_code(document: Document, root: Path) -> dict[str, Path]:
    """Note where code lies, and put a name for it in its place: the translator refuses folders."""
    everywhere = document.get("Globals", {})
    code = {}
    for logical_id, resource in document["Resources"].items():
        if resource["Type"] not in _CODE_PROPERTIES:
            continue
        section, name = _CODE_PROPERTIES[resource["Type"]]
        properties = resource.setdefault("Properties", {})
        folder = properties.get(name, everywhere.get(section, {}).get(name))
        if not isinstance(folder, str):
            raise TemplateError(f"{logical_id}.{name}: expected a folder, found {folder!r}")
        if not (root / folder).is_dir():
            raise TemplateError(f"{logical_id}.{name}: there is no folder {root / folder}")
        code[logical_id] = (root / folder).resolve()
        properties[name] = f"s3://local/{logical_id}"
    return code


class Resources:
    """The template's resources that exist under its conditions, read one by one."""

    def __init__(self, translated: Translated, endpoint_url: str) -> None:
        """Resolve a translated template; queue URLs begin with `endpoint_url`."""
        pseudo = {
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::Region": REGION,
            "AWS::StackName": STACK,
            "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{STACK}/local",
            "AWS::URLSuffix": "amazonaws.com",
        }
        self._all, self.code = translated.resources, translated.code
        self._endpoint_url = endpoint_url
        self.resolver = Resolver(
            {**translated.parameters, **pseudo},
            translated.conditions,
            translated.mappings,
            self.ref,
            self.attribute,
        )
        self.existing = {
            logical_id: resource
            for logical_id, resource in translated.resources.items()
            if "Condition" not in resource or self.resolver.holds(resource["Condition"], logical_id)
        }

    def of_type(self, kind: str) -> list[str]:
        """The logical ids of the resources of a type, in the template's order."""
        return [name for name, resource in self.existing.items() if resource["Type"] == kind]

    def properties(self, logical_id: str) -> Document:
        """Return all properties of a resource, resolved."""
        properties: Document = self.resolver.resolve(
            self.existing[logical_id].get("Properties", {}), logical_id
        )
        return properties

    def get(self, logical_id: str, key: str, default: Any = None) -> Any:
        """A property, resolved; `default` where it is missing or taken away."""
        properties = self._all[logical_id].get("Properties", {})
        if key not in properties:
            return default
        value = self.resolver.resolve(properties[key], f"{logical_id}.{key}")
        return default if value is None else value

    def number(self, logical_id: str, key: str, default: int) -> int:
        """A property which may be written as a number or a text."""
        value = self.get(logical_id, key, default)
        try:
            return int(value)
        except (TypeError, ValueError) as error:
            where = f"{logical_id}.{key}"
            raise TemplateError(f"{where}: expected a number, found {value!r}") from error

    def name(self, logical_id: str) -> str:
        """The name in the template, or one made of the stack's name and the logical id."""
        kind = self._all[logical_id]["Type"]
        key, _ = _KINDS.get(kind, ("", ""))
        name = self.get(logical_id, key)
        if name is not None:
            return self.resolver.text(name, f"{logical_id}.{key}")
        made = f"{STACK}-{logical_id}"
        return made.lower() if kind == "AWS::S3::Bucket" else made

    def arn(self, logical_id: str) -> str:
        """The ARN of a resource whose type has one here."""
        _, form = _KINDS[self._all[logical_id]["Type"]]
        return "arn:aws:" + form.format(region=REGION, account=ACCOUNT, name=self.name(logical_id))

    def ref(self, logical_id: str) -> str | None:
        """What `Ref` gives, or nothing if there is no such resource."""
        if logical_id not in self._all:
            return None
        kind = self._all[logical_id]["Type"]
        if kind == "AWS::SQS::Queue":
            return f"{self._endpoint_url}/{ACCOUNT}/{self.name(logical_id)}"
        return self.arn(logical_id) if kind in _REF_IS_ARN else self.name(logical_id)

    def attribute(self, logical_id: str, attribute: str) -> str | None:
        """What `Fn::GetAtt` gives, or nothing for what is not known here."""
        if logical_id not in self._all:
            return None
        kind = self._all[logical_id]["Type"]
        if attribute == "Arn":
            return self.arn(logical_id) if kind in _KINDS else None
        if (kind, attribute) == ("AWS::IAM::Role", "RoleId"):
            return SENDER_ID
        return self.name(logical_id) if (kind, attribute) in _NAME_ATTRIBUTES else None
