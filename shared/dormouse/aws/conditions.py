"""Whether S3 and DynamoDB hold to the conditions of writes, on which every promise rests.

AWS does. Other servers may ignore a condition, or let several requests at once pass it: then two
processes each believe that theirs is the one write, and rows are lost without a word. So each
condition is tried by several requests at once, of which one at most may succeed. What is written
for it lies in the bucket of results and in the table of the state, and is deleted.
"""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dormouse.aws.clients import ConditionFailedError, is_forbidden, is_of_aws, reading, writing
from dormouse.aws.uploads import MultipartUpload
from dormouse.errors import ContendedError, ServiceRefusedError
from dormouse.stored.paths import InstanceNames
from dormouse.system import OwnFolder

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef
    from mypy_boto3_s3 import S3Client

AT_ONCE = 4
_BODY = b"condition"
_Trials = Generator[tuple[str, Callable[[], bool]]]
"""Names of conditions, each with what returns whether it is ignored."""


class Conditions:
    """The conditions of an instance's services, tried once where they are not those of AWS."""

    def __init__(
        self,
        s3: "S3Client",
        dynamodb: "DynamoDBClient",
        names: InstanceNames,
        new_id: Callable[[], str],
        *,
        tried_at: str = "",
    ) -> None:
        """Try them with clients of their own, whose requests `before_write` does not see; not
        before the first write if both services are at a URI where they were tried.
        """
        self._s3, self._dynamodb, self._names, self._new_id = s3, dynamodb, names, new_id
        self._lock, self._held, self._tried_at = threading.Lock(), False, tried_at

    def before_write(self, params: dict[str, Any], **_: object) -> None:
        """Try them before the first request of the process that has a condition: botocore's event
        ``provide-client-params``.
        """
        if {"IfNoneMatch", "ConditionExpression", "TransactItems"} & params.keys():
            with self._lock:
                if not self._held and not self._were_tried():
                    self.check()
                self._held = True

    def _were_tried(self) -> bool:
        # asked for here: a client is made when it is first used
        places = {client.meta.endpoint_url for client in (self._s3, self._dynamodb)}
        return places == {self._tried_at}

    def check(self) -> None:
        """Check that each condition is held to.
        Raises ServiceRefusedError: one is not; it is named. Nothing may be written there.
        """
        ignored: list[str] = []
        for service, client, trials in (
            ("S3", self._s3, self._of_s3()),
            ("DynamoDB", self._dynamodb, self._of_dynamodb()),
        ):
            with closing(trials):
                if not is_of_aws(client.meta.endpoint_url):
                    at = f"{service} at {client.meta.endpoint_url}"
                    ignored += [f"{at}: {name}" for name, trial in trials if _is_ignored(trial)]
        if ignored:
            raise ServiceRefusedError(
                f"conditions of writes are not held to by {'; '.join(ignored)}",
                hint="rows would be lost there: use AWS, or a server that holds to them",
            )

    def _of_s3(self) -> _Trials:
        bucket, path = self._names.results_bucket, f"conditions/{self._new_id()}"

        def put(number: int) -> None:
            self._s3.put_object(Bucket=bucket, Key=path, Body=_BODY, IfNoneMatch="*")

        def other_content() -> bool:
            with suppress(ConditionFailedError, ServiceRefusedError), writing("S3"):
                self._s3.get_object(Bucket=bucket, Key=path, IfMatch='"none"')
                return True
            return False

        def complete(number: int) -> None:
            with OwnFolder() as folder:
                local = Path(folder) / "part"
                local.write_bytes(_BODY)
                upload = MultipartUpload.begin(self._s3, bucket, f"{path}-parts")
                try:
                    part = upload.put_part(1, local, 0, len(_BODY))
                    upload.complete([part], len(_BODY), {"IfNoneMatch": "*"})
                finally:
                    upload.abort()

        try:
            yield "If-None-Match of PutObject", lambda: _winners("S3", put) > 1
            yield "If-Match of GetObject", other_content
            yield "If-None-Match of CompleteMultipartUpload", lambda: _winners("S3", complete) > 1
        finally:
            with suppress(ServiceRefusedError), writing("S3"):
                for key in (path, f"{path}-parts"):
                    self._s3.delete_object(Bucket=bucket, Key=key)

    def _of_dynamodb(self) -> _Trials:
        table, name = self._names.table("state"), f"(conditions)#{self._new_id()}"
        absent = "attribute_not_exists(t)"

        def key(number: int) -> dict[str, Any]:
            return {"t": {"S": name}, "g": {"S": str(number)}}

        def put(number: int) -> None:
            self._dynamodb.put_item(TableName=table, Item=key(-1), ConditionExpression=absent)

        def update(number: int) -> None:
            self._dynamodb.update_item(
                TableName=table,
                Key=key(-1),
                UpdateExpression="SET won = :won",
                ConditionExpression="attribute_not_exists(won)",
                ExpressionAttributeValues={":won": {"N": str(number)}},
            )

        def transact(number: int) -> None:
            shared: TransactWriteItemTypeDef = {
                "Put": {"TableName": table, "Item": key(-2), "ConditionExpression": absent}
            }
            own: TransactWriteItemTypeDef = {"Put": {"TableName": table, "Item": key(number)}}
            self._dynamodb.transact_write_items(TransactItems=[own, shared])

        def is_torn() -> bool:
            """Return whether several transactions landed, or a part of one that did not."""
            winners = _winners("DynamoDB", transact)
            with reading("DynamoDB"):
                answers = [
                    self._dynamodb.get_item(TableName=table, Key=key(number), ConsistentRead=True)
                    for number in range(AT_ONCE)
                ]
            return winners > 1 or sum("Item" in each for each in answers) != winners

        try:
            yield "ConditionExpression of PutItem", lambda: _winners("DynamoDB", put) > 1
            yield "ConditionExpression of UpdateItem", lambda: _winners("DynamoDB", update) > 1
            yield "ConditionExpression of TransactWriteItems", is_torn
        finally:
            with suppress(ServiceRefusedError), writing("DynamoDB"):
                for number in range(-2, AT_ONCE):
                    self._dynamodb.delete_item(TableName=table, Key=key(number))


def _winners(service: str, request: Callable[[int], object]) -> int:
    """Return how many of some requests at once succeed; the others lose by their condition."""

    def wins(number: int) -> bool:
        with suppress(ConditionFailedError, ContendedError), writing(service):
            request(number)
            return True
        return False

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return sum(threads.map(wins, range(AT_ONCE)))


def _is_ignored(trial: Callable[[], bool]) -> bool:
    """Return whether a condition is ignored; a process that may not write needs none."""
    try:
        return trial()
    except ServiceRefusedError as error:
        if is_forbidden(error.__cause__):
            return False
        raise
