"""track_spark: what became of a run of Spark."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_decoded
from dormouse.aws.functions.spark_events import changed_run
from dormouse.features.spark.track_spark import track_spark


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each event of a run."""
    return handle_decoded(event, context, "spark-runs", changed_run, track_spark)
