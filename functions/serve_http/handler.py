"""serve_http: answers requests to the API, which an HTTP API hands over."""

from functools import partial

from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.apis import handle_http
from dormouse.aws.handling import Event, process
from dormouse.client.deployment import instance_of
from dormouse.messages.stages import SERVED, load

SERVE = load(SERVED["serve_http"])


def handle(event: Event, context: LambdaContext) -> dict[str, object]:
    """Answer one request."""
    return handle_http(event, context, partial(SERVE, instance_of(process())))
