"""collect_garbage: shards without references are deleted."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_messages
from dormouse.features.garbage.collect_garbage import collect_garbage
from dormouse.messages import GarbageCandidates


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_messages(event, context, "gc-candidates", GarbageCandidates, collect_garbage)
