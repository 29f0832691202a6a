"""Requests by message, and the replies to them, on the local stack."""

from __future__ import annotations

import json
from typing import Any

import boto3

from tests.support.waiting import eventually

ACCEPTED = "accepted"


class Admin:
    """The admin queue, and the queue of replies."""

    def __init__(self) -> None:
        self._sqs = boto3.client("sqs")
        self._replies: dict[str, list[dict[str, Any]]] = {}

    def send(self, body: str) -> None:
        self._sqs.send_message(QueueUrl=self._url("admin"), MessageBody=body)

    def first_reply(self, request_id: str) -> dict[str, Any]:
        """Wait for the first reply to a request."""
        eventually(lambda: bool(self._of(request_id)))
        return self._of(request_id)[0]

    def reply(self, request_id: str) -> dict[str, Any]:
        """Wait for the last reply to a request."""
        eventually(lambda: any(r["outcome"] != ACCEPTED for r in self._of(request_id)))
        return self._of(request_id)[-1]

    def _of(self, request_id: str) -> list[dict[str, Any]]:
        """Return the replies to a request that came by now."""
        url = self._url("replies")
        found = self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        for message in found.get("Messages", []):
            body = json.loads(message["Body"])
            self._replies.setdefault(body["request_id"], []).append(body)
            self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return self._replies.get(request_id, [])

    def _url(self, queue: str) -> str:
        url: str = self._sqs.get_queue_url(QueueName=f"dormouse-local-{queue}")["QueueUrl"]
        return url
