"""Hypothesis strategies that begin with something good and damage it, as bytes, text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from hypothesis import strategies as st

_DEEP = "\ue000deep"
"""Stands for what JSON's own writer cannot nest so deep; put in afterwards."""
_DEEP_TEXTS = ("[" * 20_000 + "]" * 20_000, '{"a":' * 20_000 + "1" + "}" * 20_000, "[" * 3_000)

ODD_TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "..",
    "../x",
    "a/b",
    "x" * 3_000,
    "\ud800",
    "\u202e",
    "ſ",
    "٣",
    "-",
    "1e-999999999",
    "1e999999999",
    "9" * 5_000,
    "NaN",
    "-inf",
    "'",
    '"',
    "(" * 3_000,
    "%",
    "2024-13-45",
    "9999-12-31T23:59:59-23:59",
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63 - 1,
    2**63,
    10**30,
    -(10**400),
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    {"": None},
    _DEEP,
    *ODD_TEXTS,
)
_ODD_BYTES = (b"\0", b"\xff", b"\xff" * 8, b"\x7f\xff\xff\xff", b"\r\n", b"PAR1", b"\x1f\x8b")
_odd_bytes = st.sampled_from(
    [*_ODD_BYTES, *(text.encode("utf-8", "surrogatepass") for text in ODD_TEXTS)]
)
_CHANGES = ("flip", "flip", "cut", "end", "double", "put", "set", "splice")
_piece = _odd_bytes | st.binary(max_size=64)
odd_values = st.sampled_from(ODD_VALUES).map(deepcopy) | st.text(max_size=8) | st.integers()


@st.composite
def mangled(draw: st.DrawFn, good: Sequence[bytes]) -> bytes:
    """Return one of some good bodies with a few bits flipped, parts cut out, doubled or put in."""
    body = draw(st.sampled_from(list(good)))
    other = draw(st.sampled_from(list(good)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(body) - 1)))
        length = draw(st.integers(1, 8) | st.integers(0, len(body)))
        body = _damaged(body, at, length, draw(st.sampled_from(_CHANGES)), draw(_piece), other)
    return body


Changes: TypeAlias = list[tuple[int, int, str, bytes]]
"""Where, how long, how, and what is put in."""
changes: st.SearchStrategy[Changes] = st.lists(
    st.tuples(st.integers(0, 2**20), st.integers(0, 2**20), st.sampled_from(_CHANGES), _piece),
    min_size=1,
    max_size=3,
)


def damaged(body: bytes, by: Changes) -> bytes:
    """Return a body damaged as `mangled` does it, by changes that do not depend on its length."""
    for at, length, how, piece in by:
        body = _damaged(body, at % max(1, len(body)), length % 9, how, piece, body)
    return body


def _damaged(body: bytes, at: int, length: int, how: str, piece: bytes, other: bytes) -> bytes:
    head, part, tail = body[:at], body[at : at + length], body[at + length :]
    match how:
        case "flip" if body:
            return head + bytes([body[at] ^ 1 << length % 8]) + body[at + 1 :]
        case "cut":
            return head + tail
        case "end":
            return head
        case "double":
            return head + part + part + tail
        case "put":
            return head + piece + part + tail
        case "set":
            return head + piece + body[at + len(piece) :]
        case "splice":
            return head + other[at : at + length] + tail
    return body


@st.composite
def mangled_text(draw: st.DrawFn, good: Sequence[str]) -> str:
    """Return one of some good texts, damaged, as text that may hold anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.text(max_size=80) | st.sampled_from(ODD_TEXTS))
    text = draw(st.sampled_from(list(good)))
    for _ in range(draw(st.integers(1, 3))):
        at, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        part = draw(st.sampled_from(["", text[at:end] * 2, *ODD_TEXTS]) | st.text(max_size=4))
        text = text[:at] + part + text[end if draw(st.booleans()) else at :]
    return text


@st.composite
def odd_tree(draw: st.DrawFn, good: Sequence[Any]) -> Any:
    """Return one of some good JSON values with odd ones in places, and parts missing or added."""
    tree = deepcopy(draw(st.sampled_from(list(good))))
    for _ in range(draw(st.integers(1, 3))):
        tree = _changed(draw, tree)
    return tree


def _changed(draw: st.DrawFn, tree: Any) -> Any:
    if not tree or not isinstance(tree, dict | list) or draw(st.integers(0, 12)) == 0:
        return draw(odd_values)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = draw(st.sampled_from(keys))
    match draw(st.sampled_from(["into", "into", "into", "lose", "add"])):
        case "into":
            tree[key] = _changed(draw, tree[key])
        case "lose":
            del tree[key]
        case "add" if isinstance(tree, dict):
            tree[draw(st.text(max_size=4) | st.sampled_from(keys))] = draw(odd_values)
        case "add":
            tree.append(deepcopy(tree[key]))
    return tree


@st.composite
def mangled_json(draw: st.DrawFn, good: Sequence[Any]) -> bytes:
    """Return a good JSON value with odd ones in places, or its text damaged, or with names
    twice."""
    how = draw(st.integers(0, 9))
    if how == 0:
        return draw(st.binary(max_size=64) | st.sampled_from(_DEEP_TEXTS).map(str.encode))
    if how <= 2:
        texts = [json.dumps(value).encode() for value in good]
        return draw(mangled(texts))
    text = json.dumps(draw(odd_tree(good)), ensure_ascii=draw(st.booleans()))
    text = text.replace(json.dumps(_DEEP), draw(st.sampled_from(_DEEP_TEXTS)))
    text = text.replace(f'"{_DEEP}"', draw(st.sampled_from(_DEEP_TEXTS)))
    if draw(st.integers(0, 9)) == 0 and text.startswith("{"):
        text = "{" + text[1:-1] + "," + text[1:]  # each name twice
    return text.encode("utf-8", "surrogatepass")
