"""answer_query: queries that messages ask are answered by files of their rows."""

from functools import partial

from dormouse.aws.handling import asked_by, handle_messages, loaded

handle = partial(handle_messages, stage=loaded("answer_query"), of_sender=asked_by)
