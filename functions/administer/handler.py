"""administer: requests about whole tables."""

from functools import partial

from dormouse.aws.handling import loaded
from dormouse.aws.requests import handle_requests
from dormouse.features.administration import administer

STAGE = loaded("administer")
handle = partial(handle_requests, queue=STAGE.queue, stage=administer)
