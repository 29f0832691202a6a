"""What somebody asks of Spark for one job, besides what the properties of its table say."""

from __future__ import annotations

import msgspec

from dormouse.tables.properties import property_named


class SparkOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The job is for Spark, however small it is. Each field is the property of that name for this
    job alone, or null for the table's own. So many `spark_executors` are given, whatever it reads.
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
