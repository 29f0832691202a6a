#!/usr/bin/env bash
# Expected: `p not in (1)` and `p not in (1, 99)` give the same rows where no p is 99.
# What happens: a list of two keeps rows whose p is null, a list of one drops them: a list of one is rewritten to
# `p != 1`, and the two are handed to Arrow in ways that treat null differently.
# Versions: PyIceberg 0.12.0, pyarrow 26.0.1. Known to PyIceberg's authors.
# Who meets it: programs that build the list ("all but these customers"): the day on which the list shrinks to
# one, all rows without a customer vanish from the answer. The same with not (p in (...)).
# Output seen:
#   not in (1): [2]
#   not in (1, 99): [2, 3]
#   not (p in (1)): [2]
#   not (p in (1, 99)): [2, 3]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", LongType()))
catalog = SqlCatalog("c", uri="sqlite:///c.db", warehouse=Path("w").absolute().as_uri())
catalog.create_namespace("n")


def table(name, rows, spec=UNPARTITIONED_PARTITION_SPEC):
    new = catalog.create_table(f"n.{name}", SCHEMA, partition_spec=spec)
    named = [dict(zip(("id", "p"), row)) for row in rows]
    new.append(pa.Table.from_pylist(named, schema=SCHEMA.as_arrow()))
    return new


def ids(scan):
    return sorted(scan.to_arrow()["id"].to_pylist())


t = table("t", [(1, 1), (2, 2), (3, None)])
for text, expected in (
    ("p not in (1)", [2]),
    ("p not in (1, 99)", [2, 3]),
    ("not (p in (1))", [2]),
    ("not (p in (1, 99))", [2, 3]),
):
    rows = ids(t.scan(row_filter=text))
    print(f"{text.removeprefix('p ')}: {rows}")
    assert rows == expected
EOF
