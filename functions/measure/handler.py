"""measure: on a schedule, publish the metrics of every table."""

from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, handle_tables
from dormouse.messages.stages import SCHEDULED, load

MEASURE = load(SCHEDULED["measure"])


def handle(event: Event, context: LambdaContext) -> dict[str, int]:
    """Run the stage for the schedule."""
    return handle_tables(MEASURE, resting="measure")
