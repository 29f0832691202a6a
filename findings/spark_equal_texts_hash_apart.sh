#!/usr/bin/env bash
# Expected: values that are equal have one hash: what is grouped, joined and found as equal can be spread by it.
# What happens: with a collation that ignores case, 'A' = 'a' holds, both are one group and join each other; but
# hash, xxhash64 and md5 of the two differ, so pmod(hash(k), n) puts one group into two parts.
# Versions: PySpark 4.3.0, Java 17. A way out, where the collation ignores case alone: hash(lower(k)).
# Who meets it: who numbers shards, samples or buckets by hash(key), and later gives the column a collation.
# Output seen:
#   'A' = 'a': True, groups: 1, joined pairs: 4
#   hash equal: False, xxhash64 equal: False
#   hash of lower(k) equal: True
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyspark==4.3.0
venv/bin/python -W ignore - <<'EOF'
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

spark.sql("SELECT id, k COLLATE utf8_lcase AS k FROM VALUES (1, 'A'), (2, 'a') v(id, k)").createOrReplaceTempView("t")


def one(query):
    return spark.sql(query).first()


equal = one("SELECT a.k = b.k FROM t a, t b WHERE a.id = 1 AND b.id = 2")[0]
groups = one("SELECT count(*) FROM (SELECT k FROM t GROUP BY k)")[0]
pairs = one("SELECT count(*) FROM t a JOIN t b ON a.k = b.k")[0]
print(f"'A' = 'a': {equal}, groups: {groups}, joined pairs: {pairs}")
assert equal is True and groups == 1 and pairs == 4
hashes = one("SELECT count(DISTINCT hash(k)) = 1, count(DISTINCT xxhash64(k)) = 1 FROM t")
print(f"hash equal: {hashes[0]}, xxhash64 equal: {hashes[1]}")
keyed = one("SELECT count(DISTINCT hash(lower(k))) = 1 FROM t")[0]
print("hash of lower(k) equal:", keyed)
assert tuple(hashes) == (False, False) and keyed is True
EOF
