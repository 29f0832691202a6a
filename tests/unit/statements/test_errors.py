"""An error of a statement says what failed, and quotes no value of a row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dormouse.client import Instance
from dormouse.errors import InvalidRequestError

SECRETS = ("987654321987", "se'c", "cret", "(un", "closed")
"""What is in the only row."""


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with Instance.open(tmp_path_factory.mktemp("sql") / "mice", background=False) as instance:
        table = instance.create_table("t", "k:long, s:string, p:string", row_keys=["k"])
        with table.writer() as writer:
            writer.write({"k": 987654321987, "s": "it's \"se'cret\"\na", "p": "(un\nclosed"})
        instance.wait()
        yield instance


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("CAST(s AS INT)", "Cannot cast string … to value of Int32 type"),
        ("s::timestamp", "Error parsing timestamp from …"),
        ("s::interval", "Invalid input syntax for type interval"),
        ("k::smallint", "Can't cast value … to type Int16"),
        ("k::decimal(3, 1)", "too large to store in a Decimal128"),
        ("to_timestamp(s, '%Y')", "Error parsing timestamp from …"),
        ("chr(k)", "invalid Unicode scalar value: …"),
        ("factorial(k)", "Overflow happened on FACTORIAL"),
        ("regexp_like(s, p)", "Regular expression did not compile"),
        ("s ~ p", "Regular expression did not compile"),
        ("1 / (k - k)", "Divide by zero"),
    ],
)
def test_errors_of_rows_quote_none_of_their_values(
    mice: Instance, expression: str, says: str
) -> None:
    for text in (
        f"SELECT {expression} FROM t",
        f"SELECT k FROM t WHERE CAST({expression} AS VARCHAR) <> p",
        f"SELECT max({expression}) FROM t",
    ):
        with pytest.raises(InvalidRequestError) as caught:
            mice.sql(text).to_arrow()
        assert says in str(caught.value), caught.value
        assert not any(secret in caught.value.explanation for secret in SECRETS)


def test_errors_of_a_statement_quote_it(mice: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="'noon'"):
        mice.sql("SELECT CAST('noon' AS TIMESTAMP)").to_arrow()
