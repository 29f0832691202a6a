"""answer_query: queries that messages ask are answered by files of their rows."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_messages, loaded
from dormouse.aws.functions.senders import asked_by

STAGE = loaded("answer_query")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_messages(event, context, STAGE, of_sender=asked_by)
