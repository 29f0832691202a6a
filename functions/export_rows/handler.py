"""export_rows: rows of one version of a table become Parquet files for others."""

from functools import partial

from dormouse.aws.handling import handle_messages, loaded

handle = partial(handle_messages, stage=loaded("export_rows"))
