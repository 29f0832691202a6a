#!/usr/bin/env bash
# Expected: a FIFO queue drops a message with a known deduplication id for 5 minutes, also after the first one was
# received and deleted (SQS's developer guide says just that).
# What happens: moto looks only at messages that are still in the queue: once the first is deleted, the same id
# is delivered again, seconds later.
# Versions: moto 5.2.5, boto3 1.44.8.
# Who meets it: tests of exactly-once work over FIFO queues: a producer that sends again after a lost answer looks
# broken here and is not.
# Output seen:
#   sent twice: 1 delivered
#   sent again after its deletion: 1 delivered
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    'moto[sqs]==5.2.5' boto3==1.44.8
venv/bin/python -W ignore - <<'EOF'
import os

import boto3
from moto import mock_aws

os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
mock_aws().start()
sqs = boto3.client("sqs")
url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]


def send():
    sqs.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g", MessageDeduplicationId="d")


def drain():
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return len(messages)


send()
send()
delivered = drain()
print(f"sent twice: {delivered} delivered")
assert delivered == 1
send()
again = drain()
print(f"sent again after its deletion: {again} delivered")
assert again == 1
EOF
