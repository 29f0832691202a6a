"""Keys of AWS KMS: those of the aliases ``alias/dormouse/<instance>/<name>``."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError
from cachetools import TTLCache

from dormouse.aws.clients import code_of, is_of_aws, reading, writing
from dormouse.encryption import SubjectKeys
from dormouse.errors import ForbiddenError, ServiceRefusedError
from dormouse.ports import MirroredTable, MirrorEntry
from dormouse.stored.paths import data_prefix, iceberg_prefix

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sts import STSClient


CACHE_SECONDS = 5 * 60
"""How long a process keeps a data key that was decrypted: so long it reads on when the right to use
the key is taken away."""
CACHED_KEYS = 256
_TABLE = "dormouse-table"
_MISSING = ("NotFoundException", "DisabledException", "KMSInvalidStateException")
_OTHER_KEY = ("InvalidCiphertextException", "IncorrectKeyException")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KmsKeys:
    """An `encryption.KeyService` by KMS. The id of the table is the encryption context, which KMS
    demands, and logs in CloudTrail.
    """

    client: Any
    instance: str
    subjects: SubjectKeys
    _unwrapped: TTLCache[tuple[str, bytes, str], bytes] = field(
        default_factory=lambda: TTLCache(CACHED_KEYS, CACHE_SECONDS), repr=False
    )
    _lock: Lock = field(default_factory=Lock, repr=False)

    def wrap(self, name: str, key: bytes, table_id: str, *, is_new: bool = True) -> bytes:
        """Return a data key encrypted by the key of an alias, which people make.

        Raises:
            ForbiddenError: the caller may not use it, or there is none, or it is disabled.
            UnavailableError: KMS does not answer.
        """
        answer = self._answer(
            name,
            lambda: self.client.encrypt(
                KeyId=self._alias(name), Plaintext=key, EncryptionContext={_TABLE: table_id}
            ),
        )
        return bytes(answer["CiphertextBlob"])

    def unwrap(self, name: str, wrapped: bytes, table_id: str) -> bytes:
        """Return what `wrap` encrypted. Raises as that."""
        with self._lock:
            cached = self._unwrapped.get((name, wrapped, table_id))
        if cached is not None:
            return cached
        answer = self._answer(
            name,
            lambda: self.client.decrypt(
                KeyId=self._alias(name),
                CiphertextBlob=wrapped,
                EncryptionContext={_TABLE: table_id},
            ),
        )
        key = bytes(answer["Plaintext"])
        with self._lock:
            self._unwrapped[name, wrapped, table_id] = key
        return key

    def _alias(self, name: str) -> str:
        return f"alias/dormouse/{self.instance}/{name}"

    def _answer(self, name: str, ask: Callable[[], _T]) -> _T:
        try:
            with reading("KMS"):
                return ask()
        except ServiceRefusedError as error:
            code = code_of(error.__cause__)
            if code in _MISSING:
                raise ForbiddenError(
                    f"KMS has no usable key {self._alias(name)}",
                    hint="make a key, and give it that alias; or enable it again",
                ) from error
            if code in _OTHER_KEY:
                raise ForbiddenError("its data key was encrypted by another key") from error
            raise ForbiddenError(
                f"KMS refuses {self._alias(name)}: {error}", hint=error.hint
            ) from error


# What readers of Iceberg need on AWS: where S3 is, and credentials for the objects of one table.
#
# Credentials are lent, if the instance does that, by a role that may read what readers open of all
# tables. The session policy of each loan narrows it to one table.


LENT_SECONDS = 3600
"""How long lent credentials are valid: the longest that AWS allows a role to lend another."""


class S3ReaderAccess:
    """`ReaderAccess` to a bucket. Without the ARN of a `role`, no credentials are lent."""

    def __init__(self, s3: "S3Client", sts: "STSClient", bucket: str, role: str) -> None:
        """Lend what the role may read of the bucket."""
        self._s3, self._sts, self._bucket, self._role = s3, sts, bucket, role

    def settings(self) -> Mapping[str, str]:
        """Return the region, and where S3 is if it is not where AWS has it."""
        meta = self._s3.meta
        settings = {"client.region": meta.region_name, "s3.region": meta.region_name}
        if is_of_aws(meta.endpoint_url):
            return settings
        return {**settings, "s3.endpoint": meta.endpoint_url, "s3.path-style-access": "true"}

    def credentials(self, table_id: str) -> Mapping[str, str]:
        """Return credentials for a table's objects; none without a role, or UnavailableError."""
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


# Published tables have entries in a database of AWS Glue: `ports.Mirror`.


TABLE_ID = "dormouse.table-id"
"""The parameter of an entry that says which table it is of."""
_METADATA, _PREVIOUS = "metadata_location", "previous_metadata_location"
_MISSING_ENTRY = "EntityNotFoundException"
_CONFLICTS = (
    _MISSING_ENTRY,
    "AlreadyExistsException",
    "ConcurrentModificationException",
    "VersionMismatchException",
)


class GlueMirror:
    """`Mirror` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: Any, database: str) -> None:
        """Use a database, which must exist; none if its name is empty."""
        self._client, self._database = client, database

    @property
    def database(self) -> str:
        """The name of the database."""
        return self._database

    def get(self, name: str) -> MirrorEntry | None:
        """Return an entry; None if there is none."""
        with reading("Glue"):
            try:
                entry = self._client.get_table(DatabaseName=self._database, Name=name)["Table"]
            except ClientError as error:
                if code_of(error) != _MISSING_ENTRY:
                    raise
                return None
        parameters = entry.get("Parameters", {})
        return MirrorEntry(
            parameters.get(TABLE_ID, ""), parameters.get(_METADATA, ""), entry.get("VersionId", "")
        )

    def put(self, name: str, table: MirroredTable, old: MirrorEntry | None) -> bool:
        """Put an entry in the place of another, or of none; return False if that is not there."""
        entry = _table_input(name, table, old)
        if old is None:
            return self._change("create_table", TableInput=entry)
        return self._change(
            "update_table", TableInput=entry, VersionId=old.version, SkipArchive=True
        )

    def delete(self, name: str) -> None:
        """Delete an entry; none is no error."""
        self._change("delete_table", Name=name)

    def _change(self, call: str, **request: Any) -> bool:
        """Make a change; return False if it did nothing, because things are not as it wants them.

        Raises:
            UnavailableError: Glue refused it.
            OutcomeUnknownError: Glue did not answer, or failed.
        """
        with writing("Glue"):
            try:
                getattr(self._client, call)(DatabaseName=self._database, **request)
            except ClientError as error:
                if code_of(error) not in _CONFLICTS:
                    raise
                return False
        return True


def _table_input(name: str, table: MirroredTable, old: MirrorEntry | None) -> dict[str, Any]:
    previous = {_PREVIOUS: old.metadata} if old is not None and old.metadata else {}
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "table_type": "ICEBERG",
            _METADATA: table.metadata,
            **previous,
            TABLE_ID: table.table_id,
        },
        "StorageDescriptor": {
            "Location": table.location,
            "Columns": [{"Name": column, "Type": kind} for column, kind in table.columns],
        },
    }
