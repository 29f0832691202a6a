#!/usr/bin/env bash
# Expected: a condition has the same rows whether or not the table is partitioned by its column; -0.0 = 0.0.
# What happens: `f = 0.0` and a delete by it find the row with -0.0 in a plain table, and not where f is the
# partition column: there values are text ("-0.0"), and the file is skipped.
# Versions: deltalake 1.6.6, pyarrow 26.0.1.
# Who meets it: who partitions by a float (a rate, a bucket that was computed): a row that can be seen cannot be
# deleted by its value.
# Output seen:
#   plain: f = 0.0 finds [1, 2], delete removes 2, left []
#   partitioned by f: f = 0.0 finds [1], delete removes 1, left [2]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    deltalake==1.6.6 pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake


def ids(path, where):
    result = QueryBuilder().register("t", DeltaTable(path)).execute(f"SELECT id FROM t WHERE {where}").read_all()
    return sorted(pa.table(result)["id"].to_pylist())


for name, columns, expected in (("plain", None, [1, 2]), ("partitioned by f", ["f"], [1])):
    write_deltalake(name, pa.table({"id": [1, 2], "f": [0.0, -0.0]}), partition_by=columns)
    found = ids(name, "f = 0.0")
    removed = DeltaTable(name).delete("f = 0.0")["num_deleted_rows"]
    left = ids(name, "true")
    print(f"{name}: f = 0.0 finds {found}, delete removes {removed}, left {left}")
    assert found == expected and removed == len(expected) and left == [i for i in (1, 2) if i not in expected]
EOF
