"""A schema with columns of every type, and rows of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pandas as pd

from dormouse.schema.schema import Schema

EVERY_TYPE = Schema.from_json(
    {
        "rowKeyFields": [
            {"name": "t", "type": "TimestampType"},
            {"name": "b", "type": "ByteArrayType"},
        ],
        "sortKeyFields": [{"name": "i", "type": "IntType"}],
        "valueFields": [
            {"name": "l", "type": "LongType", "nullable": True},
            {"name": "f", "type": "FloatType", "nullable": True},
            {"name": "d", "type": "DoubleType", "nullable": True},
            {"name": "o", "type": "BooleanType", "nullable": True},
            {"name": "s", "type": "StringType", "nullable": True},
            {"name": "day", "type": "DateType", "nullable": True},
            {"name": "ntz", "type": "TimestampNtzType", "nullable": True},
            {"name": "ns", "type": "TimestampNsType", "nullable": True},
            {"name": "nn", "type": "TimestampNtzNsType", "nullable": True},
            {"name": "clock", "type": "TimeType", "nullable": True},
            {"name": "u", "type": "UuidType", "nullable": True},
            {"name": "n", "type": {"DecimalType": {"precision": 30, "scale": 5}}, "nullable": True},
            {"name": "ls", "type": {"ListType": {"elementType": "StringType"}}, "nullable": True},
            {
                "name": "m",
                "type": {"MapType": {"keyType": "ByteArrayType", "valueType": "LongType"}},
                "nullable": True,
            },
            {
                "name": "st",
                "type": {
                    "StructType": {
                        "fields": [
                            {"name": "x", "type": "DoubleType", "nullable": True},
                            {"name": "y", "type": "StringType", "nullable": True},
                        ]
                    }
                },
                "nullable": True,
            },
        ],
    }
)


def row_of_every_type(n: int) -> dict[str, object]:
    keys = {
        "t": dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + dt.timedelta(microseconds=n % 7),
        "b": bytes([255 - n % 3, n % 256]),
        "i": -n,
    }
    values = {
        "l": n * 2**40,
        "f": n / 2,
        "d": n / 3,
        "o": n % 2 == 0,
        "s": "ü" * (n % 4) + "\0",
        "day": dt.date(1950, 1, 1) + dt.timedelta(days=n),
        "ntz": dt.datetime(1950, 1, 1) + dt.timedelta(microseconds=n),  # noqa: DTZ001  # none
        "ns": pd.Timestamp(n - 1, unit="ns", tz="UTC"),
        "nn": pd.Timestamp(n + 2**60, unit="ns"),
        "clock": dt.time(n % 24, microsecond=n),
        "u": bytes([n % 256]) * 16,
        "n": Decimal(n) / 10**5 - 10**20,
        "ls": [None, "a"] if n % 2 else [],
        "m": [(b"\xff", n), (b"", None)],
        "st": {"x": None, "y": "z"} if n % 2 else None,
    }
    return keys | {name: None if n % 5 == 0 else value for name, value in values.items()}
