"""track_spark: what became of a run of Spark."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, changed_run, handle_messages, loaded

STAGE = loaded("track_spark")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each event of a run."""
    return handle_messages(event, context, STAGE, decoder=changed_run)
