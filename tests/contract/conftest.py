"""What contract tests over a folder, and those of uploads in parts, begin with."""

from tests.contract.folders import clock, database
from tests.contract.parts_on_s3 import client, on_s3

__all__ = ["client", "clock", "database", "on_s3"]
