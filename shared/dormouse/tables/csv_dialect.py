"""The CSV dialect of a table's files: separator, quote, header, and the text of a null."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dormouse.errors import InvalidRequestError
from dormouse.tables.properties import Properties


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """What RFC 4180 leaves open. If `quote` is empty, nothing is quoted. A null is never quoted."""

    separator: str = ","
    quote: str = '"'
    has_header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    dates: str = "ymd"

    def of_ending(self, ending: str) -> CsvDialect:
        """Return the dialect of files that end so: fields of ``.tsv`` are separated by tabs."""
        return replace(self, separator="\t") if ending == ".tsv" else self

    def __post_init__(self) -> None:
        """Refuse characters that would have two meanings."""
        if self.separator == self.quote:
            raise InvalidRequestError("csv_separator and csv_quote are the same character")
        if {self.separator, self.quote} & set(self.null):
            raise InvalidRequestError(
                "csv_null holds the separator or the quote",
                hint="it is compared with a whole field that is not quoted, such as NULL or \\N",
            )


def csv_dialect(properties: Properties) -> CsvDialect:
    """Return the dialect that the properties of a table describe.

    Raises:
        InvalidRequestError: the properties contradict each other.
    """
    return CsvDialect(
        separator=properties.csv_separator.replace("\\t", "\t"),
        quote=properties.csv_quote,
        has_header=properties.csv_header == "yes",
        null=properties.csv_null,
        encoding=properties.csv_encoding,
        dates=properties.csv_dates,
    )
