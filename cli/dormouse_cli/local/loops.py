"""Expands the loops of a template (`Fn::ForEach`), as AWS does before anything else.

Used by `translation`. For example::

    Fn::ForEach::Topics:                              ATopic: {Type: AWS::SNS::Topic}
      - Name                               becomes    BTopic: {Type: AWS::SNS::Topic}
      - [A, B]
      - ${Name}Topic: {Type: AWS::SNS::Topic}

The item also replaces `!Ref Name`, and `${Name}` in every text of the body. A `!Sub` with nothing
left to replace becomes its text, as references need a plain name: `!GetAtt [!Sub "${Name}Topic",
TopicName]`. The items must be written out: what AWS looks up while it deploys is unknown here.
"""

from collections.abc import Iterator
from typing import cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.plan import Json

_FOR_EACH = "Fn::ForEach::"


def has_loops(value: Json) -> bool:
    """Return whether there is a loop in a part of a template."""
    if isinstance(value, list):
        return any(map(has_loops, value))
    if not isinstance(value, dict):
        return False
    return any(key.startswith(_FOR_EACH) or has_loops(item) for key, item in value.items())


def expand_loops(value: Json, where: str) -> Json:
    """Return a part of a template with all its loops expanded; `where` is its place."""
    if isinstance(value, list):
        return [expand_loops(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    expanded: dict[str, Json] = {}
    for key, item in value.items():
        place = f"{where}.{key}"
        is_loop = key.startswith(_FOR_EACH)
        bodies = _bodies(item, place) if is_loop else [{key: expand_loops(item, place)}]
        for body in bodies:
            if twice := expanded.keys() & body.keys():
                raise TemplateError(f"{place}: there is a second {', '.join(sorted(twice))}")
            expanded |= body
    return expanded


def _bodies(loop: Json, where: str) -> Iterator[dict[str, Json]]:
    """Yield the body of a loop once for each item, with the loops in it expanded."""
    match loop:
        case [str(name), list(items), dict(body)] if all(isinstance(item, str) for item in items):
            for item in items:
                yield cast(
                    dict[str, Json], expand_loops(_filled(body, name, cast(str, item)), where)
                )
        case _:
            raise TemplateError(f"{where}: a loop is [name, [texts], {{keys: values}}]")


def _filled(value: Json, name: str, item: str) -> Json:
    """Return a part of a loop's body with the item in place of the loop's name."""
    if isinstance(value, str):
        return value.replace(f"${{{name}}}", item)
    if isinstance(value, list):
        return [_filled(part, name, item) for part in value]
    if not isinstance(value, dict):
        return value
    if value == {"Ref": name}:
        return item
    filled = {cast(str, _filled(k, name, item)): _filled(v, name, item) for k, v in value.items()}
    match filled:
        case {"Fn::Sub": str(text)} if "${" not in text:
            return text
    return filled
