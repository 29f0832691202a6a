"""collect_garbage: shards without references are deleted."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, handle_messages
from dormouse.messages import GarbageCandidates
from dormouse.stages.collect_garbage import collect_garbage


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_messages(event, context, "gc-candidates", GarbageCandidates, collect_garbage)
