"""The embedded AWS on a data folder, without the functions of a stack."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from dormouse import lifeline
from tests.support.waiting import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "stack" / "template.yaml"


@dataclass(frozen=True)
class Server:
    """The embedded AWS with its buckets, tables and queues, as a template makes them."""

    process: subprocess.Popen[bytes]
    endpoint_url: str

    def client(self, service: str) -> Any:
        session: Any = boto3.Session("local", "local", region_name="eu-west-2")
        config = Config(retries={"total_max_attempts": 1}, parameter_validation=False)
        return session.client(service, endpoint_url=self.endpoint_url, config=config)

    def deploy(self) -> None:
        s3 = self.client("s3")
        for bucket in ("plain", "versioned"):
            where = {"LocationConstraint": "eu-west-2"}
            s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
        s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
        for name in ("table", "other"):
            self.client("dynamodb").create_table(
                TableName=name,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            )
        self.client("sqs").create_queue(QueueName="queue")
        self.client("emr-serverless").create_application(
            name="spark", releaseLabel="emr-spark-8.0.0", type="SPARK"
        )

    @property
    def queue_url(self) -> str:
        return str(self.client("sqs").get_queue_url(QueueName="queue")["QueueUrl"])

    def send(self, body: str, **named: Any) -> None:
        self.client("sqs").send_message(QueueUrl=self.queue_url, MessageBody=body, **named)

    def receive(self, visibility_seconds: int = 3600) -> list[dict[str, Any]]:
        answer = self.client("sqs").receive_message(
            QueueUrl=self.queue_url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=visibility_seconds,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def body(self, bucket: str, key: str, **named: Any) -> bytes:
        read: bytes = self.client("s3").get_object(Bucket=bucket, Key=key, **named)["Body"].read()
        return read


@contextmanager
def serving(data: Path, *options: str, deploys: bool = True) -> Iterator[Server]:
    """Run the server on a data folder; it saves and ends with the block."""
    process = lifeline.start(
        "dormouse_cli.local.moto_server",
        ["--data", str(data), *options],
        cwd=ROOT,
        environment={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("listening on "), line
        server = Server(process, f"http://127.0.0.1:{int(line.split()[-1])}")
        if deploys:
            server.deploy()
        yield server
        process.terminate()
        process.wait(LIMIT_SECONDS)
    finally:
        lifeline.kill(process)
