"""Items of DynamoDB that are damaged on purpose, by hand as people and programs do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.depth import in_turn

Item = Mapping[str, Any]


def damages(item: Item, keys: tuple[str, ...]) -> Iterator[tuple[str, Item]]:
    """Yield what may become of an item under its key, and a name for each."""
    for name in sorted(item.keys() - set(keys)):
        for other in _others(item[name]):
            yield f"{name} is {next(iter(other))} {other}", {**item, name: other}
        yield f"{name} is missing", {n: value for n, value in item.items() if n != name}
    yield "an attribute more", {**item, "more": {"S": "more"}}
    yield "nothing but the key", {name: item[name] for name in keys}


def some_damages(item: Item, keys: tuple[str, ...]) -> list[tuple[str, Item]]:
    """Return a few of them by turns, of several attributes, the loss of all among them."""
    every = list(damages(item, keys))
    few = every[: -2 : len(every) // 3]
    return [*in_turn(few, parts=len(few)), every[-1]]


def _others(value: Any) -> list[Any]:
    kinds: dict[str, Callable[[Any], Any]] = {
        "S": lambda text: text[:-1] if text else "x",
        "N": lambda digits: str(int(digits) + 1),
        "B": lambda data: bytes([data[0] ^ 1, *data[1:]]) if data else b"x",
        "BOOL": lambda truth: not truth,
        "L": lambda parts: parts[:-1] if parts else [{"S": "x"}],
    }
    ((kind, held),) = value.items()
    foreign = {"N": "1"} if kind == "S" else {"S": "1"}
    return [{kind: kinds[kind](held)}, foreign, {"NULL": True}]
