"""dispatch_spark: heavy jobs become runs of Spark."""

from functools import partial

from dormouse.aws.handling import handle_messages, loaded

handle = partial(handle_messages, stage=loaded("dispatch_spark"))
