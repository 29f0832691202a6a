"""grant_access, revoke_access and clear_access: change the access rules of the instance."""

from __future__ import annotations

from dormouse.access.rules import AccessRule, granted, revoked
from dormouse.messages.requests import ClearAccess, GrantAccess, RevokeAccess
from dormouse.ports.services import Services


def grant_access(services: Services, request: GrantAccess) -> None:
    """Put a rule, in the place of one for the same principal and tables.

    Raises:
        InvalidRequestError: it is no rule, or there are too many.
    """
    rule = AccessRule(request.principal, request.tables, request.verbs, request.hidden_columns)
    services.tables.change_access_rules(lambda kept: granted(kept, rule))


def revoke_access(services: Services, request: RevokeAccess) -> None:
    """Remove a rule; that there is none is no error, since it may be a repetition.

    Raises:
        InvalidRequestError: no principal can be called like this.
    """
    services.tables.change_access_rules(
        lambda kept: revoked(kept, request.principal, request.tables)
    )


def clear_access(services: Services, request: ClearAccess) -> None:
    """Remove all rules: access is by instance again."""
    services.tables.change_access_rules(lambda _: None)
