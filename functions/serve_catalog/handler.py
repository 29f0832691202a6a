"""serve_catalog: answers requests to the Iceberg catalog, which an HTTP API hands over."""

from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.apis import handle_catalog
from dormouse.aws.handling import Event
from dormouse.messages.stages import SERVED, load

SERVE = load(SERVED["serve_catalog"])


def handle(event: Event, context: LambdaContext) -> dict[str, object]:
    """Answer one request."""
    return handle_catalog(event, context, SERVE)
