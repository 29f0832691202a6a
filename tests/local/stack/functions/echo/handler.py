"""Functions for the tests of the local host."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import boto3
from greeting import GREETING

Event = dict[str, Any]


def _keep(name: str, value: object) -> None:
    body = json.dumps(value).encode()
    boto3.client("s3").put_object(Bucket=os.environ["RESULTS_BUCKET"], Key=name, Body=body)


def work(event: Event, context: Any) -> Event:
    """Keep each record's body; fail those that ask for it, or the whole batch."""
    failed = []
    for record in event["Records"]:
        body = record["body"]
        attempt = record["attributes"]["ApproximateReceiveCount"]
        _keep(f"{record['messageId']}/{attempt}", record)
        if body == "raise":
            raise RuntimeError("asked to raise")
        if body == "fail":
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}


def window(event: Event, context: Any) -> None:
    """Keep how many records came together."""
    _keep(f"batch/{context.aws_request_id}", [record["body"] for record in event["Records"]])


def fail(event: Event, context: Any) -> Event:
    """Do as asked: raise, crash, start a process that stays, or describe the environment."""
    match event["do"]:
        case "raise":
            raise ValueError("asked to raise")
        case "crash":
            os._exit(7)
        case "spawn":
            return {"pid": subprocess.Popen(["sleep", "1000"]).pid}
    return {
        "pid": os.getpid(),
        "greeting": GREETING,
        "cwd": str(Path.cwd()),
        "temporary": tempfile.gettempdir(),
        "remaining_ms": context.get_remaining_time_in_millis(),
        "environment": dict(os.environ),
        "big": "x" * event.get("size", 0),
    }
