"""collect_garbage: shards without references are deleted."""

from functools import partial

from dormouse.aws.handling import handle_messages, loaded

handle = partial(handle_messages, stage=loaded("collect_garbage"))
