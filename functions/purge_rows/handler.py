"""purge_rows: shards with rows to remove are found and rewritten."""

from functools import partial

from dormouse.aws.handling import handle_messages, loaded

handle = partial(handle_messages, stage=loaded("purge_rows"))
