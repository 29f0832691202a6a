"""What readers of Iceberg need on AWS: where S3 is, and credentials for the objects of one table.

Credentials are lent, if the instance does that, by a role that may read what readers open of all
tables. The session policy of each loan narrows it to one table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dormouse.aws.clients import is_of_aws, reading
from dormouse.stored.paths import data_prefix, iceberg_prefix

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sts import STSClient

LENT_SECONDS = 3600
"""How long lent credentials are valid: the longest that AWS allows a role to lend another."""


class S3ReaderAccess:
    """`ReaderAccess` to a bucket. Without the ARN of a `role`, no credentials are lent."""

    def __init__(self, s3: S3Client, sts: STSClient, bucket: str, role: str) -> None:
        """Lend what the role may read of the bucket."""
        self._s3, self._sts, self._bucket, self._role = s3, sts, bucket, role

    def settings(self) -> Mapping[str, str]:
        """Return the region, and where S3 is if it is not where AWS has it."""
        meta = self._s3.meta
        found = {"client.region": meta.region_name, "s3.region": meta.region_name}
        if is_of_aws(meta.endpoint_url):
            return found
        return {**found, "s3.endpoint": meta.endpoint_url, "s3.path-style-access": "true"}

    def credentials(self, table_id: str) -> Mapping[str, str]:
        """Return credentials for shards and metadata of one table; nothing without a role.

        Raises:
            UnavailableError: STS does not answer, or refuses.
        """
        if not self._role:
            return {}
        with reading("STS"):
            lent = self._sts.assume_role(
                RoleArn=self._role,
                RoleSessionName=f"table-{table_id}",
                DurationSeconds=LENT_SECONDS,
                Policy=json.dumps(self._policy(table_id), separators=(",", ":")),
            )["Credentials"]
        return {
            "s3.access-key-id": lent["AccessKeyId"],
            "s3.secret-access-key": lent["SecretAccessKey"],
            "s3.session-token": lent["SessionToken"],
            "s3.session-token-expires-at-ms": str(int(lent["Expiration"].timestamp() * 1000)),
        }

    def _policy(self, table_id: str) -> dict[str, object]:
        partition = self._role.split(":")[1]
        bucket = f"arn:{partition}:s3:::{self._bucket}"
        prefixes = (data_prefix(table_id), iceberg_prefix(table_id))
        statement = {
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": [f"{bucket}/{prefix}*" for prefix in prefixes],
        }
        return {"Version": "2012-10-17", "Statement": [statement]}
