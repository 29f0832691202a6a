#!/usr/bin/env bash
# Expected: numbers are values: 1 and 1.0 are one key. DynamoDB refuses a transaction or a batch that names one item
# twice, keeps at most 38 digits (more is an error), and returns 1.0 as 1.
# What happens: moto stores 1 and 1.0 as one item, as it should; but its checks for an item named twice compare
# the text, so a transaction with both, and a batch with both, pass. It takes 39 digits, and gives the spelling back.
# Versions: moto 5.2.5, boto3 1.44.8.
# Who meets it: stores with numbers in their keys whose parts spell them differently (Decimal("1.0"), JSON): tests
# pass, and AWS refuses the commit.
# Output seen:
#   same spelling: transaction ValidationException, batch ValidationException
#   1 and 1.0: transaction accepted, batch accepted
#   items then: ['1.0']
#   39 digits come back as 39 digits
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    'moto[dynamodb]==5.2.5' boto3==1.44.8
venv/bin/python -W ignore - <<'EOF'
import os

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
mock_aws().start()
db = boto3.client("dynamodb")
db.create_table(
    TableName="t",
    KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}, {"AttributeName": "n", "KeyType": "RANGE"}],
    AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}, {"AttributeName": "n", "AttributeType": "N"}],
    BillingMode="PAY_PER_REQUEST",
)


def put(n):
    return {"Item": {"k": {"S": "a"}, "n": {"N": n}}}


def outcome(call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "accepted"


for label, pair in (("same spelling", ("1", "1")), ("1 and 1.0", ("1", "1.0"))):
    one = outcome(db.transact_write_items, TransactItems=[{"Put": {"TableName": "t", **put(n)}} for n in pair])
    two = outcome(db.batch_write_item, RequestItems={"t": [{"PutRequest": put(n)} for n in pair]})
    print(f"{label}: transaction {one}, batch {two}")
    assert (one, two) == (("accepted",) * 2 if label == "1 and 1.0" else ("ValidationException",) * 2)
items = [item["n"]["N"] for item in db.scan(TableName="t")["Items"]]
print("items then:", items)
assert items == ["1.0"]
db.put_item(TableName="t", Item={"k": {"S": "b"}, "n": {"N": "1"}, "v": {"N": "1" * 39}})
kept = db.get_item(TableName="t", Key={"k": {"S": "b"}, "n": {"N": "1"}})["Item"]["v"]["N"]
print(f"39 digits come back as {len(kept)} digits")
assert kept == "1" * 39
EOF
