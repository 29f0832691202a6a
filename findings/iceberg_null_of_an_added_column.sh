#!/usr/bin/env bash
# Expected: a null is a null: rows from before a column was added read as null in it, and meet conditions as
# rows do into which null was written.
# What happens: `z != 1` finds the rows of files that lack the column, and not the rows whose files have it with
# null. Once the table is written anew, the same query over the same rows finds fewer.
# Versions: PyIceberg 0.12.0, pyarrow 26.0.1.
# Why: for a file without the column the condition is decided from Iceberg's rule (null is not equal to 1: true)
# before Arrow, whose rule is another one, sees a row.
# Who meets it: whoever adds a column ("deleted", "state") and selects by what it is not.
# Output seen:
#   all rows read: [(1, None), (2, None), (3, 5)]
#   z != 1: [1, 3]
#   after writing the same rows anew: [3]
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


t = table("t", [(1, 1)])
with t.update_schema() as update:
    update.add_column("z", LongType())
wide = pa.schema([("id", pa.int64()), ("p", pa.int64()), ("z", pa.int64())])
t.append(pa.Table.from_pylist([{"id": 2, "p": 1, "z": None}, {"id": 3, "p": 1, "z": 5}], schema=wide))
rows = t.scan().to_arrow()
pairs = sorted(zip(rows["id"].to_pylist(), rows["z"].to_pylist()))
print("all rows read:", pairs)
assert pairs == [(1, None), (2, None), (3, 5)]
before = ids(t.scan(row_filter="z != 1"))
print("z != 1:", before)
assert before == [1, 3]
t.overwrite(rows)
after = ids(t.scan(row_filter="z != 1"))
print("after writing the same rows anew:", after)
assert after == [3]
EOF
