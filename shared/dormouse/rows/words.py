"""The function `has` of conditions, as DataFusion calls it."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from datafusion import ScalarUDF, SessionContext, udf

from dormouse.arrow.types import Array
from dormouse.arrow.words import matching


def register_words(context: SessionContext) -> None:
    """Make the function known to a session."""
    context.register_udf(_function())


@cache
def _function() -> ScalarUDF:
    return udf(_has, [pa.string(), pa.string()], pa.bool_(), "immutable", "has")


def _has(texts: Array, wanted: Array) -> Array:
    return matching(texts, str(wanted[0].as_py())) if len(texts) else pa.array([], pa.bool_())
