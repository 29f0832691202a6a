#!/usr/bin/env bash
# Expected: TransactWriteItems with the ClientRequestToken of an earlier call changes nothing for 10 minutes, and with
# other contents is refused by IdempotentParameterMismatchException (DynamoDB's API reference).
# What happens: moto takes no notice of the token: the same call adds again, another one under the same token too.
# Versions: moto 5.2.5, boto3 1.44.8.
# Who meets it: tests of commits that are retried after a lost answer. They see doubled effects that AWS does not
# have, or are "repaired" by a condition whose loss they then cannot notice.
# Output seen:
#   after one call: 1
#   after the same call again: 2
#   after another call with its token: 7
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


KEY = {"k": {"S": "a"}, "n": {"N": "1"}}


def add(value):
    values = {":x": {"N": value}}
    update = {"TableName": "t", "Key": KEY, "UpdateExpression": "ADD v :x", "ExpressionAttributeValues": values}
    db.transact_write_items(ClientRequestToken="commit-1", TransactItems=[{"Update": update}])
    return db.get_item(TableName="t", Key=KEY)["Item"]["v"]["N"]


for label, value, expected in (
    ("one call", "1", "1"),
    ("the same call again", "1", "2"),
    ("another call with its token", "5", "7"),
):
    seen = add(value)
    print(f"after {label}: {seen}")
    assert seen == expected
EOF
