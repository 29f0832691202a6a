"""plan_table: a table changed: what is due to be split and compacted?"""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_changes
from dormouse.features.planning.plan_table import plan_table


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for all messages."""
    return handle_changes(event, context, "table-changes", plan_table)
