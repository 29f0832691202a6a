"""serve_websocket: serves connections of clients, which a WebSocket API hands over."""

from functools import partial

from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.apis import handle_socket
from dormouse.aws.handling import Event, process
from dormouse.client.deployment import instance_of
from dormouse.messages.stages import CONNECTED, load

SERVE = load(CONNECTED["serve_websocket"])


def handle(event: Event, context: LambdaContext) -> dict[str, object]:
    """Do what one event of a connection asks for."""
    return handle_socket(event, context, partial(SERVE, instance_of(process())))
