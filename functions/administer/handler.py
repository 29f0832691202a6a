"""administer: requests about whole tables."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event
from dormouse.aws.requests import handle_requests
from dormouse.stages.administer import administer


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_requests(event, context, "admin", administer)
