"""The resources of a translated template that exist under its conditions; read by `template_*`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.intrinsics import Document, References, Resolver
from dormouse_cli.local.plan import Json
from dormouse_cli.local.resource_names import STACK, ResourceNames
from dormouse_cli.local.translation import Translated

ACCOUNT = "123456789012"


@dataclass(frozen=True, slots=True)
class Resources:
    """The template's resources that exist under its conditions, read one by one."""

    existing: Mapping[str, Document]
    code: Mapping[str, Path]
    resolver: Resolver
    names: ResourceNames

    @classmethod
    def of(
        cls, translated: Translated, endpoint_url: str, region: str, account: str = ACCOUNT
    ) -> "Resources":
        """Return a translated template's resources; queue URLs begin with `endpoint_url`."""
        pseudo = {
            "AWS::AccountId": account,
            "AWS::Partition": "aws",
            "AWS::Region": region,
            "AWS::StackName": STACK,
            "AWS::StackId": f"arn:aws:cloudformation:{region}:{account}:stack/{STACK}/local",
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
            translated.mappings,
        )
        existing = {
            logical_id: resource
            for logical_id, resource in translated.resources.items()
            if "Condition" not in resource
            or resolver.holds(cast(str, resource["Condition"]), logical_id)
        }
        return cls(existing, translated.code, resolver, names)

    def of_type(self, kind: str) -> list[str]:
        """The logical ids of the resources of a type, in the template's order."""
        return [name for name, resource in self.existing.items() if resource["Type"] == kind]

    def properties(self, logical_id: str) -> Document:
        """Return all properties of a resource, resolved."""
        properties = self.existing[logical_id].get("Properties", {})
        return cast(Document, self.resolver.resolve(properties, logical_id))

    def get(self, logical_id: str, key: str, default: Json = None) -> Json:
        """A property, resolved; `default` where it is missing or taken away."""
        properties = cast(Document, self.existing[logical_id].get("Properties", {}))
        if key not in properties:
            return default
        resolved = self.resolver.resolve(properties[key], f"{logical_id}.{key}")
        return default if resolved is None else resolved

    def number(self, logical_id: str, key: str, default: int) -> int:
        """A property which may be written as a number or a text."""
        value = self.get(logical_id, key, default)
        try:
            return int(cast(str, value))
        except (TypeError, ValueError) as error:
            where = f"{logical_id}.{key}"
            raise TemplateError(f"{where}: expected a number, found {value!r}") from error

    def name(self, logical_id: str) -> str:
        """The name that the resource has."""
        return self.names.name(logical_id)

    def arn(self, logical_id: str) -> str:
        """The ARN of a resource whose type has one."""
        return cast(str, self.names.arn(logical_id))
