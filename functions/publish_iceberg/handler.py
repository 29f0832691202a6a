"""publish_iceberg: a table changed: publish it for readers of Iceberg."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, handle_changes, loaded

STAGE = loaded("publish_iceberg")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for all messages."""
    return handle_changes(event, context, STAGE.queue, STAGE.load())
