#!/usr/bin/env bash
# Expected: CompleteMultipartUpload with an If-Match that is not the object's ETag is 412, as PutObject is (S3's
# documentation of conditional writes names both calls).
# What happens: moto checks If-None-Match at the end of an upload in parts, and If-Match of a PutObject, but
# not If-Match at the end of an upload in parts: the object is replaced.
# Versions: moto 5.2.5, boto3 1.44.8.
# Who meets it: who swaps an object by comparing (a pointer, a manifest) and lets large ones go in parts: the
# test of a lost race passes because the loser wins.
# Output seen:
#   PutObject, If-Match of another: PreconditionFailed
#   upload in parts, If-None-Match: PreconditionFailed
#   upload in parts, If-Match of another: accepted
#   the object then: b'loser'
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    'moto[s3]==5.2.5' boto3==1.44.8
venv/bin/python -W ignore - <<'EOF'
import os

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
mock_aws().start()
s3 = boto3.client("s3")
s3.create_bucket(Bucket="swaps")
OBJECT = {"Bucket": "swaps", "Key": "pointer"}
s3.put_object(**OBJECT, Body=b"winner")


def in_parts(**condition):
    upload = {**OBJECT, "UploadId": s3.create_multipart_upload(**OBJECT)["UploadId"]}
    part = {"PartNumber": 1, "ETag": s3.upload_part(**upload, PartNumber=1, Body=b"loser")["ETag"]}
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [part]}, **condition)


def outcome(call):
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "accepted"


stale = '"00000000000000000000000000000000"'
for label, call, expected in (
    ("PutObject, If-Match of another", lambda: s3.put_object(**OBJECT, Body=b"loser", IfMatch=stale), "PreconditionFailed"),
    ("upload in parts, If-None-Match", lambda: in_parts(IfNoneMatch="*"), "PreconditionFailed"),
    ("upload in parts, If-Match of another", lambda: in_parts(IfMatch=stale), "accepted"),
):
    seen = outcome(call)
    print(f"{label}: {seen}")
    assert seen == expected
body = s3.get_object(**OBJECT)["Body"].read()
print("the object then:", body)
assert body == b"loser"
EOF
