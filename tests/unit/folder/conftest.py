"""What tests of a folder begin with."""

from tests.contract.folders import clock, database

__all__ = ["clock", "database"]
