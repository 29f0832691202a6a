"""split_partition: a leaf with too many rows becomes two."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.functions.handling import Event, handle_messages
from dormouse.features.splitting.split_partition import split_partition
from dormouse.messages import PartitionSplits


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for each message."""
    return handle_messages(event, context, "partition-splits", PartitionSplits, split_partition)
