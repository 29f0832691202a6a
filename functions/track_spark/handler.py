"""track_spark: what became of a run of Spark."""

from functools import partial

from dormouse.aws.handling import changed_run, handle_messages, loaded

handle = partial(handle_messages, stage=loaded("track_spark"), decoder=changed_run)
