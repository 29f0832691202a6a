"""The access rules of an instance: the part of `instance` that shows and changes them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dormouse.errors import NotFoundError
from dormouse.messages.requests import AdminRequest, ClearAccess, GrantAccess, RevokeAccess
from dormouse.ports.services import Services

if TYPE_CHECKING:
    from dormouse.access.rules import AccessRules, Permission, Verb
    from dormouse.messages.stages import OutboundMessage


class RuledInstance:
    """What `Instance` has of access rules.

    They say which caller may do what by services of the instance that answer any caller. A process
    that reads with rights of its own, as this class does, is not bound by them.
    """

    __slots__ = ()
    services: Services

    @abstractmethod
    def _administer(self, request: AdminRequest) -> list[OutboundMessage]: ...

    def access_rules(self) -> AccessRules:
        """Return the access rules, by principal and tables; None if access is by instance.

        Raises:
            CorruptDataError: they are damaged; `repair` restores them.
        """
        return self.services.tables.access_rules()

    def permission(self, principal: str, table: str) -> Permission:
        """Return what the rules permit a caller for a table, and which columns they hide.

        `principal` may be the ARN of a session too; its role counts.

        Raises:
            CorruptDataError: the rules are damaged.
        """
        from dormouse.access.principals import principal_of_arn
        from dormouse.access.rules import permission

        return permission(self.access_rules(), principal_of_arn(principal) or principal, table)

    def grant(
        self, principal: str, tables: str, verbs: Iterable[Verb], hide: Iterable[str] = ()
    ) -> AccessRules:
        """Let callers read, write or administer tables; return all rules then.

        `principal` and `tables` are names, or patterns in which ``*`` stands for any characters. A
        rule for the same two is replaced. The columns `hide` are hidden from who reads by the rule.
        The first rule ends that access is by instance: nobody may do what no rule grants.

        Raises:
            InvalidRequestError: this is no rule; nothing is changed.
        """
        new_id = self.services.ids.new()
        self._administer(GrantAccess(new_id, principal, tables, tuple(verbs), tuple(hide)))
        return self.access_rules()

    def revoke(self, principal: str, tables: str) -> AccessRules:
        """Remove the rule of a principal for tables; return the rules that are left.

        If none is left, nobody may do anything; `clear_access_rules` gives access back.

        Raises:
            NotFoundError: there is no such rule; others may still apply to both.
        """
        from dormouse.access.principals import checked_principals

        key = checked_principals(principal), tables
        if key not in [rule.key for rule in self.access_rules() or ()]:
            raise NotFoundError(
                f"there is no access rule of {principal!r} for {tables!r}",
                hint="`dormouse access list` shows all",
            )
        self._administer(RevokeAccess(self.services.ids.new(), principal, tables))
        return self.access_rules()

    def clear_access_rules(self) -> None:
        """Remove all rules: access is by instance again."""
        self._administer(ClearAccess(self.services.ids.new()))
