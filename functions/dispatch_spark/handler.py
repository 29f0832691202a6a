"""dispatch_spark: heavy jobs become runs of Spark."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_decoded
from dormouse.features.spark.dispatch_spark import dispatch_spark
from dormouse.messages import decode_spark_job


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_decoded(event, context, "spark-jobs", decode_spark_job, dispatch_spark)
