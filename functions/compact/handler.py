"""compact: an assigned job's shards become one, in one step or several."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, handle_messages, loaded

STAGE = loaded("compact")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_messages(event, context, STAGE)
