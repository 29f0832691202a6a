"""plan_table: a table changed: what is due to be split and compacted?"""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, handle_changes, loaded

STAGE = loaded("plan_table")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for all messages."""
    return handle_changes(event, context, STAGE.queue, STAGE.load())
