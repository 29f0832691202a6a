#!/usr/bin/env bash
# Expected: a value that was written is read, and every reader of one package reads the same.
# What happens: rows whose partition column is the empty text come back as '' from deltalake's own SQL and from
# Polars, and as null from deltalake's dataset for pyarrow. Conditions follow: s = '' finds the row in one and not
# in the other, s IS NULL the reverse. In a table without partitions all read ''.
# Versions: deltalake 1.6.6, pyarrow 26.0.1, Polars 2.1.0. The format's document (PROTOCOL.md, on how partition
# values are written) has the empty text stand for null, for any type: so the writer takes a value that the format
# cannot hold, and only one of the three readers does as the format says.
# Who meets it: who partitions by text that may be empty (country, tenant), and reads with more than one tool.
# Output seen:
#   partitioned: SQL ['', None, 'a'], pyarrow [None, None, 'a'], Polars ['', None, 'a']
#   rows with s = '': SQL 1, pyarrow 0
#   plain: SQL ['', None, 'a'], pyarrow ['', None, 'a'], Polars ['', None, 'a']
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    deltalake==1.6.6 pyarrow==26.0.1 polars==2.1.0
venv/bin/python -W ignore - <<'EOF'
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

ROWS = pa.table({"id": [1, 2, 3], "s": ["", None, "a"]})


def sql(path, query):
    return pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(query).read_all())


def read(path):
    arrow = DeltaTable(path).to_pyarrow_dataset().to_table().sort_by("id")["s"].to_pylist()
    frame = pl.scan_delta(path).sort("id").collect()["s"].to_list()
    return sql(path, "SELECT s FROM t ORDER BY id")["s"].to_pylist(), arrow, frame


for name, columns, expected in (("partitioned", ["s"], None), ("plain", None, "")):
    write_deltalake(name, ROWS, partition_by=columns)
    mine, arrow, frame = read(name)
    print(f"{name}: SQL {mine}, pyarrow {arrow}, Polars {frame}")
    assert mine == frame == ["", None, "a"] and arrow == [expected, None, "a"]
    if columns:
        count = sql(name, "SELECT id FROM t WHERE s = ''").num_rows
        other = DeltaTable(name).to_pyarrow_dataset().to_table(filter=pc.field("s") == "").num_rows
        print(f"rows with s = '': SQL {count}, pyarrow {other}")
        assert (count, other) == (1, 0)
EOF
