"""answer_query: queries that messages ask are answered by files of their rows."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, asked_by, handle_messages, loaded

STAGE = loaded("answer_query")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_messages(event, context, STAGE, of_sender=asked_by)
