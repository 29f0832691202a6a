"""plan_table: a table changed: what is due to be split and compacted?"""

from functools import partial

from dormouse.aws.handling import handle_changes, loaded

STAGE = loaded("plan_table")
handle = partial(handle_changes, queue=STAGE.queue, stage=STAGE.load())
