"""Prices of AWS, and what a measurement comes to at them; used by `bench.cost`."""

from __future__ import annotations

from collections.abc import Mapping

DATED = "us-east-1, on demand, on arm64, without free tiers, as of November 2026"
GB_SECOND = 0.0000133334
"""Dollars for a GB of a function's memory for a second."""
SCRATCH_GB_SECOND = 0.0000000309
"""Dollars for a GB of a function's temporary storage for a second, beyond the first half GB."""
FREE_SCRATCH_GB = 0.5
INVOCATION = 0.20e-6
GB_MONTH = 0.023
"""Dollars for a GB in S3 Standard for a month."""
MEGABYTES_PER_GB = 1024
DOLLARS_PER_MILLION = {"wru": 0.625, "rru": 0.125, "put": 5.0, "get": 0.4, "list": 5.0}
"""A write unit of 1 KB and a read unit of 4 KB of DynamoDB; requests of S3. Deletes are free."""
_PUT, _GET = DOLLARS_PER_MILLION["put"] / 1e6, DOLLARS_PER_MILLION["get"] / 1e6
REQUESTS = {
    "PutObject": _PUT,
    "CreateMultipartUpload": _PUT,
    "UploadPart": _PUT,
    "CompleteMultipartUpload": _PUT,
    "ListObjectsV2": DOLLARS_PER_MILLION["list"] / 1e6,
    "GetObject": _GET,
    "DeleteObjects": 0.0,
}
"""Dollars for a request to S3. Traffic between S3 and functions of a region is free."""


def function_dollars(seconds: float, memory_mb: float, scratch_mb: float) -> float:
    """Return the price of one invocation of a function."""
    scratch_gb = max(0.0, scratch_mb / MEGABYTES_PER_GB - FREE_SCRATCH_GB)
    a_second = memory_mb / MEGABYTES_PER_GB * GB_SECOND + scratch_gb * SCRATCH_GB_SECOND
    return INVOCATION + seconds * a_second


def request_dollars(counts: Mapping[str, float]) -> float:
    """Return the price of requests to S3, by their names.

    Raises:
        KeyError: a request has no price here.
    """
    return sum(count * REQUESTS[name] for name, count in counts.items())
