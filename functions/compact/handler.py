"""compact: an assigned job's shards become one, in one step or several."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_messages
from dormouse.features.compaction.compact_in_steps import compact_within_limits
from dormouse.messages import CompactionJob


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_messages(event, context, "compaction-jobs", CompactionJob, compact_within_limits)
