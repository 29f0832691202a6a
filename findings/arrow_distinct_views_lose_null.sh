#!/usr/bin/env bash
# Expected: the distinct values of a column are those that it has, whatever the layout of its texts.
# What happens: `unique`, `value_counts` and a dictionary that encodes nulls turn null into an empty text, if texts
# are views: both are then there, an empty text twice. Grouping the same column keeps them apart.
# Versions: pyarrow 26.0.1, Polars 2.1.0. Open since January 2024: https://github.com/apache/arrow/issues/39635
# Who meets it: whoever takes frames of Polars as it hands them to others (its texts are views), and asks pyarrow
# which values a column has: customers without a name become customers whose name is empty.
# Output seen:
#   of Polars: string_view
#   unique: string ['x', None, ''], string_view ['x', '', '']
#   value_counts: string_view [('x', 2), ('', 2), ('', 1)]
#   dictionary: string_view ['x', '', '']
#   groups: string_view [('x', 2), (None, 2), ('', 1)]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyarrow==26.0.1 polars==2.1.0
venv/bin/python - <<'EOF'
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

frame = pl.DataFrame({"name": ["x", None, "", None, "x"]})
views = pa.table(frame)["name"].combine_chunks()
print("of Polars:", views.type)
assert views.type == pa.string_view()

texts = pa.array(views.to_pylist(), pa.string())
print(f"unique: string {texts.unique().to_pylist()}, string_view {views.unique().to_pylist()}")
assert texts.unique().to_pylist() == ["x", None, ""] and views.unique().to_pylist() == ["x", "", ""]

counts = [(row["values"], row["counts"]) for row in pc.value_counts(views).to_pylist()]
print("value_counts: string_view", counts)
assert counts == [("x", 2), ("", 2), ("", 1)]

encoded = views.dictionary_encode(null_encoding="encode").dictionary.to_pylist()
print("dictionary: string_view", encoded)
assert encoded == ["x", "", ""]

groups = pa.table({"name": views}).group_by("name", use_threads=False).aggregate([([], "count_all")])
rows = [(row["name"], row["count_all"]) for row in groups.to_pylist()]
print("groups: string_view", rows)
assert sorted(rows, key=str) == [("", 1), ("x", 2), (None, 2)]
EOF
