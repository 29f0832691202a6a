"""ingest: a job's files become sorted shards of their table."""

from functools import partial

from dormouse.aws.handling import handle_messages, loaded

handle = partial(handle_messages, stage=loaded("ingest"))
