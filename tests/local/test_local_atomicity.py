"""The embedded AWS must be as atomic as AWS; each hazard is shown to be real in plain moto."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from dormouse import lifeline

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Server:
    endpoint_url: str

    def client(self, service: str) -> Any:
        session: Any = boto3.Session("local", "local", region_name="eu-west-2")
        once = Config(retries={"total_max_attempts": 1})
        return session.client(service, endpoint_url=self.endpoint_url, config=once)


def start(kind: str) -> Iterator[Server]:
    process = lifeline.start(
        "tests.local.pausing_moto",
        [kind],
        cwd=ROOT,
        environment={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[-1])
        server = Server(f"http://127.0.0.1:{port}")
        server.client("s3").create_bucket(
            Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-2"}
        )
        server.client("dynamodb").create_table(
            TableName="table",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        )
        yield server
    finally:
        lifeline.kill(process)


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    yield from start("plain")


@pytest.fixture(scope="module")
def atomic() -> Iterator[Server]:
    yield from start("atomic")


def succeeded(call: Callable[[], Any]) -> bool:
    try:
        call()
    except ClientError as error:
        assert error.response["Error"]["Code"] in (
            "ConditionalCheckFailedException",
            "PreconditionFailed",
            "TransactionCanceledException",
        )
        return False
    return True


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as callers:
        return [future.result() for future in [callers.submit(call) for call in calls]]


def winners_of_put_if_absent(server: Server) -> int:
    dynamodb = server.client("dynamodb")

    def put() -> bool:
        return succeeded(
            lambda: dynamodb.put_item(
                TableName="table",
                Item={"pk": {"S": "absent"}},
                ConditionExpression="attribute_not_exists(pk) OR pk = :never",
                ExpressionAttributeValues={":never": {"S": "meet-to-put"}},
            )
        )

    return sum(at_once(put, put))


def test_one_of_two_items_put_if_absent_wins(plain: Server, atomic: Server) -> None:
    assert winners_of_put_if_absent(plain) == 2
    assert winners_of_put_if_absent(atomic) == 1


def winners_of_a_version(server: Server) -> int:
    dynamodb = server.client("dynamodb")
    dynamodb.put_item(TableName="table", Item={"pk": {"S": "versioned"}, "version": {"N": "1"}})

    def advance() -> bool:
        return succeeded(
            lambda: dynamodb.update_item(
                TableName="table",
                Key={"pk": {"S": "versioned"}},
                UpdateExpression="SET version = :next",
                ConditionExpression="version = :now OR pk = :never",
                ExpressionAttributeValues={
                    ":now": {"N": "1"},
                    ":next": {"N": "2"},
                    ":never": {"S": "meet-to-update"},
                },
            )
        )

    return sum(at_once(advance, advance))


def test_one_of_two_updates_conditioned_on_a_version_wins(plain: Server, atomic: Server) -> None:
    assert winners_of_a_version(plain) == 2
    assert winners_of_a_version(atomic) == 1


def another_write_survives_a_cancelled_transaction(server: Server) -> bool:
    dynamodb = server.client("dynamodb")

    def transact() -> bool:
        check = {
            "TableName": "table",
            "Key": {"pk": {"S": "missing"}},
            "ConditionExpression": "pk = :never",
            "ExpressionAttributeValues": {":never": {"S": "meet-in-transaction"}},
        }
        put = {"TableName": "table", "Item": {"pk": {"S": "cancelled"}}}
        return succeeded(
            lambda: dynamodb.transact_write_items(
                TransactItems=[{"Put": put}, {"ConditionCheck": check}]
            )
        )

    def put_another() -> None:
        item = {"pk": {"S": "another"}, "between": {"S": "meet-in-transaction"}}
        dynamodb.put_item(TableName="table", Item=item)

    committed, _ = at_once(transact, put_another)
    assert not committed
    assert "Item" not in dynamodb.get_item(TableName="table", Key={"pk": {"S": "cancelled"}})
    return "Item" in dynamodb.get_item(TableName="table", Key={"pk": {"S": "another"}})


def test_a_cancelled_transaction_undoes_no_write_of_others(plain: Server, atomic: Server) -> None:
    assert not another_write_survives_a_cancelled_transaction(plain)
    assert another_write_survives_a_cancelled_transaction(atomic)


def winners_of_if_none_match(server: Server) -> int:
    s3 = server.client("s3")

    def put() -> bool:
        return succeeded(
            lambda: s3.put_object(Bucket="bucket", Key="meet-to-create", Body=b"", IfNoneMatch="*")
        )

    return sum(at_once(put, put))


def test_one_of_two_objects_created_if_none_match_wins(plain: Server, atomic: Server) -> None:
    assert winners_of_if_none_match(plain) == 2
    assert winners_of_if_none_match(atomic) == 1


def receivers_of_one_message(server: Server) -> int:
    sqs = server.client("sqs")
    url = sqs.create_queue(QueueName="queue")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="meet-to-receive")

    def receive() -> int:
        return len(sqs.receive_message(QueueUrl=url).get("Messages", []))

    return sum(at_once(receive, receive))


def test_a_message_has_one_receiver(plain: Server, atomic: Server) -> None:
    assert receivers_of_one_message(plain) == 2
    assert receivers_of_one_message(atomic) == 1


def test_a_transaction_sent_again_with_its_token_is_applied_once(atomic: Server) -> None:
    dynamodb = atomic.client("dynamodb")

    def add(amount: str) -> None:
        update = {
            "TableName": "table",
            "Key": {"pk": {"S": "counter"}},
            "UpdateExpression": "ADD amount :amount",
            "ExpressionAttributeValues": {":amount": {"N": amount}},
        }
        dynamodb.transact_write_items(
            TransactItems=[{"Update": update}], ClientRequestToken="token"
        )

    add("3")
    add("3")
    item = dynamodb.get_item(TableName="table", Key={"pk": {"S": "counter"}})["Item"]
    assert item["amount"] == {"N": "3"}
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        add("4")


def test_a_cancelled_transaction_restores_the_items_it_changed(atomic: Server) -> None:
    dynamodb = atomic.client("dynamodb")
    before = {"pk": {"S": "kept"}, "amount": {"N": "1"}}
    dynamodb.put_item(TableName="table", Item=before)
    update = {
        "TableName": "table",
        "Key": {"pk": {"S": "kept"}},
        "UpdateExpression": "ADD amount :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    check = {
        "TableName": "table",
        "Key": {"pk": {"S": "nowhere"}},
        "ConditionExpression": "attribute_exists(pk)",
    }
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        dynamodb.transact_write_items(TransactItems=[{"Update": update}, {"ConditionCheck": check}])
    assert dynamodb.get_item(TableName="table", Key={"pk": {"S": "kept"}})["Item"] == before
