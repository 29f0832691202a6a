#!/usr/bin/env bash
# Expected: a pattern that begins with ^, \A or \b is counted where it matches in the whole text: ^[0-9] once in 2024.
# What happens: `count_substring_regex` and `split_pattern_regex` go on with what follows a match as if it were a text
# of its own, so that the anchor matches again, and 2024 has four beginnings. Replacing by the same pattern does not.
# Versions: pyarrow 26.0.1, pandas 3.1.1, whose texts are in Arrow where pyarrow is installed.
# Who meets it: whoever counts words or lines of a column by an anchor: `Series.str.count` answers otherwise for
# texts as objects (or without pyarrow), and otherwise than `str.replace`, which replaces one.
# Output seen:
#   ^[0-9] in '2024': re 1, count_substring_regex 4, pandas 4, pandas with objects 1
#   \bno in 'nono no': re 2, count_substring_regex 3, pandas 3, pandas with objects 2
#   replaced: ['<>024', '<>no <>']
#   split of '2024': re ['', '024'], split_pattern_regex ['', '', '', '', '']
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyarrow==26.0.1 pandas==3.1.1
venv/bin/python - <<'EOF'
import re

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

replaced = []
for pattern, text, right, wrong in ((r"^[0-9]", "2024", 1, 4), (r"\bno", "nono no", 2, 3)):
    texts = pa.array([text])
    by_re, by_arrow = len(re.findall(pattern, text)), pc.count_substring_regex(texts, pattern)[0].as_py()
    by_pandas = int(pd.Series([text]).str.count(pattern)[0])
    by_objects = int(pd.Series([text], dtype=object).str.count(pattern)[0])
    print(
        f"{pattern} in {text!r}: re {by_re}, count_substring_regex {by_arrow}, pandas {by_pandas},",
        f"pandas with objects {by_objects}",
    )
    assert (by_re, by_arrow, by_pandas, by_objects) == (right, wrong, wrong, right)
    replaced.append(pc.replace_substring_regex(texts, pattern, "<>")[0].as_py())
print("replaced:", replaced)
assert replaced == ["<>024", "<>no <>"]

by_re, by_arrow = re.split(r"^[0-9]", "2024"), pc.split_pattern_regex(["2024"], r"^[0-9]")[0].as_py()
print(f"split of '2024': re {by_re}, split_pattern_regex {by_arrow}")
assert by_re == ["", "024"] and by_arrow == [""] * 5
EOF
