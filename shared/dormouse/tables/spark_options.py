"""What a request asks of Spark for one job, in place of the properties of its table."""

from __future__ import annotations

import msgspec

from dormouse.tables.properties import property_named


class SparkOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options of a job that Spark does, whatever its size. Each field overrides the property of the
    same name for this job; null keeps the table's value. A number of `spark_executors` is used as
    it is, whatever the job reads.
    """

    spark_executors: int | None = None
    spark_executor_cores: int | None = None
    spark_executor_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that the properties cannot have, however the options were made."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                property_named(name).check(value)
