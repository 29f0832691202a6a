"""sweep: on a schedule: what did a lost message leave undone?"""

from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, handle_schedule
from dormouse.features.deletion import collect_leftovers
from dormouse.messages.stages import SCHEDULED, load

SWEEP = load(SCHEDULED["sweep"])


def handle(event: Event, context: LambdaContext) -> dict[str, int]:
    """Run the stage for the schedule."""
    return handle_schedule(event, SWEEP, collect_leftovers)
