"""An instance that is deployed on AWS. Only this module of the client imports the AWS adapters."""

from dataclasses import replace
from functools import lru_cache, partial

from dormouse.client.instance import Instance
from dormouse.client.waiting import Polling
from dormouse.errors import UnavailableError, needs_extra
from dormouse.settings import Settings, folder_hint
from dormouse.system import RETRIES

with needs_extra("aws", "an instance on AWS"):
    from dormouse.aws.clients import client, presigning_client, reading
    from dormouse.aws.emr import find_application
    from dormouse.aws.queues import queue_ages
    from dormouse.aws.uploads import S3IngestBucket, result_url
    from dormouse.aws.wiring import Wiring, wire


def connect_deployment(settings: Settings) -> Instance:
    """Connect to the instance that `settings` names; no request is sent if they name its account.
    Raises UnavailableError: there are no credentials or no region, or AWS does not answer.
    """
    try:
        with reading("AWS"):
            wiring = wire(settings)
            names = wiring.settings.names
            return replace(
                instance_of(wiring),
                ages=partial(queue_ages, names, cloudwatch=client("cloudwatch")),
                spark_application=partial(find_application, client("emr-serverless"), names),
            )
    except UnavailableError as error:
        hints = (folder_hint(settings.instance), error.hint)
        raise type(error)(str(error), hint="; ".join(filter(None, hints))) from error


@lru_cache(maxsize=1)
def instance_of(wiring: Wiring) -> Instance:
    """Return the instance that a process is wired to; how old messages are is not known there."""
    names = wiring.settings.names
    return Instance(
        wiring.services,
        wiring.outbox,
        S3IngestBucket.of(names),
        Polling(wiring.services.clock, RETRIES.sleep),
        result_link=partial(result_url, presigning_client(names.account), names.results_bucket),
    )
