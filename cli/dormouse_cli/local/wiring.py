"""Refuses a deployment whose parts do not fit together; called by `template`."""

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.plan import Deployment


def check_wiring(deployment: Deployment) -> None:
    """Refuse what AWS refuses on creation, and would otherwise show up only as a lost message."""
    queues = {queue.arn: queue for queue in deployment.queues}
    for queue in deployment.queues:
        if queue.redrive is not None and queue.redrive.dead_letter_arn not in queues:
            raise TemplateError(f"queue {queue.name}: its dead-letter queue does not exist")
    for bucket in deployment.buckets:
        for notification in bucket.notifications:
            if notification.queue_arn not in queues:
                raise TemplateError(f"bucket {bucket.name}: there is no {notification.queue_arn}")
    for rule in deployment.rules:
        for arn in rule.queue_arns:
            if arn not in queues:
                raise TemplateError(f"rule {rule.name}: there is no {arn}")
    _check_routes(deployment)
    for source in deployment.event_sources:
        function, fed_by = deployment.function(source.function), queues.get(source.queue_arn)
        if function is None or fed_by is None:
            raise TemplateError(
                f"event source {source.queue_name} → {source.function}: one of them does not exist"
            )
        if fed_by.visibility_timeout_seconds < function.timeout_seconds:
            raise TemplateError(
                f"queue {fed_by.name}: its visibility timeout of "
                f"{fed_by.visibility_timeout_seconds} s is less than the timeout of "
                f"{function.name}, {function.timeout_seconds} s"
            )


def _check_routes(deployment: Deployment) -> None:
    for route in deployment.routes:
        if deployment.function(route.function) is None:
            raise TemplateError(f"route {route.key}: there is no function {route.function}")
