"""publish_iceberg: a table changed: publish it for readers of Iceberg."""

from functools import partial

from dormouse.aws.handling import handle_changes, loaded

STAGE = loaded("publish_iceberg")
handle = partial(handle_changes, queue=STAGE.queue, stage=STAGE.load())
