"""track_spark: what became of a run of Spark."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_decoded, loaded
from dormouse.aws.functions.spark_events import changed_run

STAGE = loaded("track_spark")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each event of a run."""
    return handle_decoded(event, context, STAGE, changed_run)
