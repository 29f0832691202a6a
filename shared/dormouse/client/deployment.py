"""An instance that is deployed on AWS. Only this module of the client imports the AWS adapters."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dormouse.client.instance import Instance
from dormouse.client.waiting import Polling
from dormouse.errors import UnavailableError, needs_extra
from dormouse.settings import Settings, folder_hint
from dormouse.system import retry_policy

with needs_extra("aws", "an instance on AWS"):
    from dormouse.aws.clients import reading
    from dormouse.aws.emr import EmrApplications
    from dormouse.aws.queues import CloudWatchAges
    from dormouse.aws.uploads import S3IngestBucket, S3ResultLinks
    from dormouse.aws.wiring import Wiring, wire


def connect_deployment(settings: Settings) -> Instance:
    """Connect to the instance that `settings` names; no request is sent if they name its account.

    Raises:
        UnavailableError: there are no credentials or no region, or AWS does not answer.
    """
    try:
        with reading("AWS"):
            wiring = wire(settings)
            names = wiring.settings.names
            ages, applications = CloudWatchAges.of(names), EmrApplications.of(names)
            return replace(instance_of(wiring), ages=ages.ages, spark_application=applications.find)
    except UnavailableError as error:
        hints = (folder_hint(settings.instance), error.hint)
        raise type(error)(str(error), hint="; ".join(filter(None, hints))) from error


@lru_cache(maxsize=1)
def instance_of(wiring: Wiring) -> Instance:
    """Return the instance that a process is wired to; how old messages are is not known there."""
    return Instance(
        wiring.services,
        wiring.outbox,
        S3IngestBucket.of(wiring.settings.names),
        Polling(wiring.services.clock, retry_policy().sleep),
        result_link=S3ResultLinks.of(wiring.settings.names).download_url,
    )
