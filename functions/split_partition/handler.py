"""split_partition: a leaf with too many rows becomes two."""

from functools import partial

from dormouse.aws.handling import handle_messages, loaded

handle = partial(handle_messages, stage=loaded("split_partition"))
