"""An error of a statement says what failed, and quotes no value of a row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dormouse.client.instance import Instance
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
        ("CAST(s AS INT)", "Could not convert string … in column s"),
        ("s::timestamp", "invalid timestamp field format …"),
        ("s::interval", "Could not convert string … in column s"),
        ("k::smallint", "with value … can't be cast because the value is out of range"),
        ("k::decimal(3, 1)", "Could not cast value … to DECIMAL"),
        ("strptime(s, '%Y')", "Could not parse string …"),
        ("chr(k::int)", "with value … can't be cast"),
        ("regexp_matches(s, p)", "missing ) …"),
        ("s ~ p", "missing ) …"),
        ("unhex(s)", "Invalid input for hex digit …"),
        ("json(s)", "Malformed JSON at byte … of input …"),
        ("k * 9223372036854775807", "Overflow in multiplication"),
        ("k // (k - k)", "Division by zero"),
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


def test_a_value_of_a_row_cannot_be_made_the_error(mice: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="the function error is not allowed"):
        mice.sql("SELECT error(s) FROM t")


def test_errors_of_a_statement_without_tables_quote_it(mice: Instance) -> None:
    with pytest.raises(InvalidRequestError, match='"noon"'):
        mice.sql("SELECT CAST('noon' AS TIMESTAMP)").to_arrow()
