"""Resolves CloudFormation's intrinsic functions, only where a value is really read.

Used by `template`. What it does not know it refuses by name and place: a value that was silently
dropped would show up as a wrong name or an empty environment variable somewhere else.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.plan import Json

Document = dict[str, Json]
NO_VALUE = "AWS::NoValue"
_PLACEHOLDER = re.compile(r"\$\{(!?)([^}]+)\}")


@dataclass(frozen=True, slots=True)
class References:
    """What `Ref` and `Fn::GetAtt` of resources mean; `None` for what is unknown."""

    ref: Callable[[str], str | None]
    attribute: Callable[[str, str], str | None]


class _Nothing:
    """The value of AWS::NoValue: the property or item it stands for is left out."""


_NOTHING = _Nothing()
_Resolved: TypeAlias = "Json | _Nothing"


class Resolver:
    """Turns a template's values into plain ones; errors name the place (`where`) of the value."""

    def __init__(
        self,
        parameters: Mapping[str, str],
        conditions: Mapping[str, Json],
        references: References,
        mappings: Mapping[str, Json] | None = None,
    ) -> None:
        """`parameters` include the pseudo parameters, such as `AWS::Region`."""
        self._parameters = parameters
        self._conditions = conditions
        self._references = references
        self._mappings = mappings or {}
        self._functions: Mapping[str, Callable[[Json, str], _Resolved]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::FindInMap": self._find_in_map,
            "Fn::Sub": self._sub,
            "Fn::Join": self._join,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
            "Fn::If": self._if,
            "Fn::Equals": self._equals,
            "Fn::And": self._and,
            "Fn::Or": self._or,
            "Fn::Not": self._not,
            "Fn::EachMemberEquals": self._each_member_equals,
            "Condition": self._condition,
        }

    def resolve(self, value: Json, where: str) -> Json:
        """The plain value; `None` where AWS::NoValue takes the value away."""
        resolved = self._resolve(value, where)
        return None if isinstance(resolved, _Nothing) else resolved

    def text(self, value: Json, where: str) -> str:
        """The plain value as CloudFormation writes it into a string."""
        resolved = self.resolve(value, where)
        if isinstance(resolved, bool):
            return "true" if resolved else "false"
        if isinstance(resolved, str | int | float):
            return str(resolved)
        raise TemplateError(f"{where}: expected a text, found {resolved!r}")

    def holds(self, condition: str, where: str) -> bool:
        """Whether the template's condition of that name holds."""
        if condition not in self._conditions:
            raise TemplateError(f"{where}: there is no condition {condition!r}")
        return self.resolve(self._conditions[condition], f"Conditions.{condition}") is True

    def _resolve(self, value: Json, where: str) -> _Resolved:
        if isinstance(value, list):
            items = [self._resolve(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return [item for item in items if not isinstance(item, _Nothing)]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, argument = next(iter(value.items()))
            if name in self._functions and (name != "Condition" or isinstance(argument, str)):
                return self._functions[name](argument, where)
            if name.startswith("Fn::"):
                raise TemplateError(f"{where}: the local stack does not know {name}")
        pairs = {key: self._resolve(item, f"{where}.{key}") for key, item in value.items()}
        return {key: item for key, item in pairs.items() if not isinstance(item, _Nothing)}

    def _ref(self, argument: Json, where: str) -> _Resolved:
        name = cast(str, argument)
        if name == NO_VALUE:
            return _NOTHING
        if name in self._parameters:
            return self._parameters[name]
        found = self._references.ref(name)
        if found is None:
            raise TemplateError(f"{where}: !Ref {name} names neither a parameter nor a resource")
        return found

    def _get_att(self, argument: Json, where: str) -> str:
        path = argument.split(".") if isinstance(argument, str) else cast(list[str], argument)
        resource, attribute = path[0], ".".join(path[1:])
        found = self._references.attribute(resource, attribute)
        if found is None:
            raise TemplateError(
                f"{where}: the local stack does not know !GetAtt {resource}.{attribute}"
            )
        return found

    def _sub(self, argument: Json, where: str) -> str:
        pattern, own = argument, cast(Document, {})
        if isinstance(argument, list):
            pattern, own = argument[0], cast(Document, argument[1])

        def replacement(match: re.Match[str]) -> str:
            literally, name = match.groups()
            if literally:
                return f"${{{name}}}"
            if name in own:
                return self.text(own[name], where)
            intrinsic = "Fn::GetAtt" if "." in name else "Ref"
            return self.text({intrinsic: name}, where)

        return _PLACEHOLDER.sub(replacement, cast(str, pattern))

    def _find_in_map(self, argument: Json, where: str) -> Json:
        found: Json = cast(Json, self._mappings)
        for part in cast(list[Json], argument):
            key = self.text(part, where)
            if not isinstance(found, dict) or key not in found:
                raise TemplateError(f"{where}: !FindInMap {argument} names nothing: no key {key!r}")
            found = found[key]
        return found

    def _join(self, argument: Json, where: str) -> str:
        separator, items = cast(list[Json], argument)
        parts = self.resolve(items, where)
        return cast(str, separator).join(self.text(part, where) for part in cast(list[Json], parts))

    def _select(self, argument: Json, where: str) -> Json:
        index, items = cast(list[Json], argument)
        return cast(list[Json], self.resolve(items, where))[int(self.text(index, where))]

    def _split(self, argument: Json, where: str) -> Json:
        separator, text = cast(list[Json], argument)
        return cast(Json, self.text(text, where).split(cast(str, separator)))

    def _if(self, argument: Json, where: str) -> _Resolved:
        condition, then, otherwise = cast(list[Json], argument)
        return self._resolve(then if self.holds(cast(str, condition), where) else otherwise, where)

    def _equals(self, argument: Json, where: str) -> bool:
        left, right = cast(list[Json], argument)
        return self.text(left, where) == self.text(right, where)

    def _each_member_equals(self, argument: Json, where: str) -> bool:
        members, expected = (self.resolve(item, where) for item in cast(list[Json], argument))
        if isinstance(members, str):  # a parameter that is a list with commas
            members = cast(Json, members.split(","))
        return all(member == expected for member in cast(list[Json], members))

    def _and(self, argument: Json, where: str) -> bool:
        return all(self.resolve(item, where) is True for item in cast(list[Json], argument))

    def _or(self, argument: Json, where: str) -> bool:
        return any(self.resolve(item, where) is True for item in cast(list[Json], argument))

    def _not(self, argument: Json, where: str) -> bool:
        return self.resolve(cast(list[Json], argument)[0], where) is not True

    def _condition(self, argument: Json, where: str) -> bool:
        return self.holds(cast(str, argument), where)
