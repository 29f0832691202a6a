"""batch_files: objects dropped into the ingest bucket become ingest jobs."""

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Event, handle_notifications, loaded
from dormouse.features.batch_files import batch_files

STAGE = loaded("batch_files")


def handle(event: Event, context: LambdaContext) -> PartialItemFailureResponse:
    """Run the stage for all messages."""
    return handle_notifications(event, context, STAGE.queue, batch_files)
