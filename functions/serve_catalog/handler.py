"""serve_catalog: answers requests to the Iceberg catalog, which an HTTP API hands over."""

from functools import partial

from dormouse.aws.apis import handle_catalog
from dormouse.messages.stages import SERVED, load

handle = partial(handle_catalog, serve=load(SERVED["serve_catalog"]))
