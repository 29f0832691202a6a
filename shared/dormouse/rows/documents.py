"""Functions that DataFusion calls: tests of what is in JSON documents, and of words.

It has none of its own for JSON. These read documents with Python, exactly: numbers are compared as
decimals of any length.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
from datafusion import ScalarUDF, SessionContext, udf

from dormouse.arrow.documents import ABSENT, Path, holds, kind_of, typed, values_at
from dormouse.arrow.types import Array, arrow_type
from dormouse.arrow.words import matching
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import MIRRORED, Call, Expression, Literal, text_literal

TEST = "json_test"
_CASTS = {
    Primitive.STRING: "json_text",
    Primitive.LONG: "json_long",
    Primitive.DOUBLE: "json_double",
    Primitive.BOOLEAN: "json_boolean",
}


def document_sql(call: Call, parts: list[str]) -> str | None:
    """Return a call that reads a document as SQL with these functions; None if it reads none.
    `parts` are its rendered arguments: that of a document or a part of one is its column.
    """
    if call.op == "PATH":
        return parts[0]
    operands = [*zip(call.arguments, parts, strict=True)]
    documents = [(e, part) for e, part in operands if e.type is Primitive.DYNAMIC]
    if not documents or (call.op == "IS NULL" and not isinstance(call.arguments[0], Call)):
        return None
    document, column = documents[0]
    path = text_literal(json.dumps(path_of(document)))
    if call.op in ("CAST", "TRY_CAST"):
        return f"{_CASTS[Primitive(call.type)]}({column}, {path})"
    if call.op == "json_kind":
        return f"json_kind({column}, {path})"
    is_mirrored = isinstance(call.arguments[0], Literal)
    op = MIRRORED.get(call.op, call.op) if is_mirrored else call.op
    constants = [e.value for e in call.arguments if isinstance(e, Literal)]
    texts = json.dumps([_shown(each) for each in constants])
    return f"{TEST}({column}, {path}, {text_literal(op)}, {text_literal(texts)})"


def path_of(document: Expression) -> Path:
    """Return the path of a part of a document; an empty one of a whole document."""
    if not isinstance(document, Call):
        return ()
    steps = (e.value for e in document.arguments[1:] if isinstance(e, Literal))
    return tuple(step for step in steps if isinstance(step, str | int))


def _shown(constant: object) -> object:
    """Return a constant as JSON keeps it: numbers of any length as texts in a list."""
    is_number = isinstance(constant, int | Decimal) and not isinstance(constant, bool)
    return [str(constant)] if is_number else constant


def _constant(shown: Any) -> object:
    return Decimal(shown[0]) if isinstance(shown, list) else shown


def register(context: SessionContext) -> None:
    """Make these functions known to a session."""
    for function in _functions():
        context.register_udf(function)


@cache
def _functions() -> list[ScalarUDF]:
    document, text, truth = pa.large_string(), pa.string(), pa.bool_()
    functions = [udf(_test, [document, text, text, text], truth, "immutable", TEST)]
    functions.append(udf(_kinds, [document, text], text, "immutable", "json_kind"))
    functions.append(udf(_has, [text, text], truth, "immutable", "has"))
    for kind, name in _CASTS.items():
        functions.append(udf(_cast(kind), [document, text], arrow_type(kind), "immutable", name))
    return functions


def _test(texts: Array, paths: Array, ops: Array, constants: Array) -> Array:
    if not len(texts):
        return pa.array([], pa.bool_())
    op = str(ops[0].as_py())
    alternatives = [_constant(each) for each in json.loads(str(constants[0].as_py()))]
    values = _values(texts, paths)
    if op == "IS NULL":
        return pa.array([value is ABSENT for value in values], pa.bool_())
    return pa.array([holds(op, value, alternatives) for value in values], pa.bool_())


def _kinds(texts: Array, paths: Array) -> Array:
    kinds = (None if value is ABSENT else kind_of(value) for value in _values(texts, paths))
    return pa.array(list(kinds), pa.string())


def _cast(kind: Primitive) -> Callable[[Array, Array], Array]:
    return lambda texts, paths: typed(_values(texts, paths), kind)


def _has(texts: Array, words: Array) -> Array:
    return matching(texts, str(words[0].as_py())) if len(texts) else pa.array([], pa.bool_())


def _values(texts: Array, paths: Array) -> list[object]:
    path: Path = tuple(json.loads(str(paths[0].as_py()))) if len(paths) else ()
    return values_at(texts.to_pylist(), [path])[0]
