"""A local S3 in a process of its own, and clients of it; used by what is measured on S3."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import IO, TYPE_CHECKING
from unittest.mock import patch

from botocore.config import Config

from bench.measure import command, environment
from bench.s3.server import Slowness
from dormouse.aws.clients import client
from dormouse.aws.storage import S3Sources, S3Storage
from dormouse.aws.wiring import CLIENT_CONFIG

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

DATA, SOURCES = "data", "sources"
_UNSIGNED = Config(s3={"payload_signing_enabled": False})
"""Over TLS bodies are not hashed to sign them; the server does without TLS, and they are not."""


class LocalS3:
    """A running server with two buckets, which are folders below `folder`."""

    def __init__(self, folder: Path, asked: IO[str], answers: IO[str]) -> None:
        self.folder = folder
        self._asked, self._answers = asked, answers

    @property
    def storage(self) -> S3Storage:
        return S3Storage(self.client(), DATA)

    @property
    def sources(self) -> S3Sources:
        return S3Sources(self.client(), SOURCES)

    def client(self) -> S3Client:
        return client("s3", CLIENT_CONFIG.merge(_UNSIGNED))

    def begin(self) -> None:
        """Count from here on: what the SDK does once is no part of what is measured."""
        next(self.storage.list(""), None)
        self.counts()

    def counts(self) -> dict[str, float]:
        """Return what was asked since the last call, and the CPU seconds that the server took."""
        self._asked.write("\n")
        self._asked.flush()
        counts: dict[str, float] = json.loads(self._answers.readline())
        return counts


@contextmanager
def local_s3(folder: Path, slowness: Slowness) -> Iterator[LocalS3]:
    """Serve buckets below `folder` as long as the context lasts; clients made in it find them."""
    for bucket in (DATA, SOURCES):
        (folder / bucket).mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        command("s3.server:serve", folder, *astuple(slowness)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as server:
        if server.stdin is None or server.stdout is None:
            raise ValueError("the server has no pipes")
        variables = {
            "AWS_ENDPOINT_URL_S3": server.stdout.readline().strip(),
            "AWS_DEFAULT_REGION": "eu-west-2",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        try:
            with patch.dict(os.environ, variables):
                yield LocalS3(folder, server.stdin, server.stdout)
        finally:
            server.terminate()
