"""compact: an assigned job's shards become one, in one step or several."""

from functools import partial

from dormouse.aws.handling import handle_messages, loaded

handle = partial(handle_messages, stage=loaded("compact"))
