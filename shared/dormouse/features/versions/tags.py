"""tag_version, untag_version: name a version of a table, which is pinned as long as it has a tag.

Each is one call of the state store (`statestore.pinning`), and repeatable. Untagging sends what it
frees to garbage collection; if that message is lost, the sweep finds it.
"""

from __future__ import annotations

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.features.garbage.collect_garbage import candidates
from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.features.tables.tags import tags_of
from dormouse.features.tables.versions import read_version, refuse_purged
from dormouse.messages.requests import TagVersion, UntagVersion
from dormouse.messages.stages import OutboundMessage
from dormouse.model.versions.as_of import check_tag
from dormouse.model.versions.pins import OwnerKind, Pin, PinOwner
from dormouse.ports.services import Services
from dormouse.tables.table import Table


def tag_version(services: Services, request: TagVersion) -> None:
    """Tag a version of a table once, however often the request is delivered.

    Raises:
        InvalidRequestError: it cannot be the name of a tag, or the number of a version.
        AlreadyExistsError: the tag names another version.
        NotFoundError: no table has that name, the version is not kept any more, or a purge ended
            after it.
        ContendedError: it took too long; nothing is tagged.
    """
    if request.version < 1:
        raise InvalidRequestError(f"{request.version} is not a version; the first of a table is 1")
    table = resolve_live_table(services, request)
    owner = _owner(request.tag)
    pins = services.store(table).pins
    pin = find_tag(services, table, request.tag)
    if pin is None:
        _, state = read_version(services, table, version=request.version)
        pin = pins.add(owner, state)
        try:  # with the table as it is now: a purge may have ended meanwhile
            refuse_purged(resolve_live_table(services, request), pin.version, "tagged")
        except NotFoundError:
            pins.remove(owner)
            raise
    if pin.version != request.version:
        raise AlreadyExistsError(
            f"table {table.name!r} has a tag {request.tag!r} already, of version {pin.version}",
            hint="choose another name, or remove that tag first",
        )


def untag_version(services: Services, request: UntagVersion) -> list[OutboundMessage]:
    """Remove a tag; return the shards that its version may have needed last as candidates.

    Raises:
        InvalidRequestError: it cannot be the name of a tag.
        NotFoundError: no table has that name, or the table has no such tag.
    """
    table = resolve_live_table(services, request)
    owner = _owner(request.tag)
    if not services.store(table).pins.remove(owner):
        tagged(services, table, request.tag)  # raises NotFoundError
    state = services.store(table).current()
    return candidates(table, state, sorted(state.unreferenced))


def find_tag(services: Services, table: Table, tag: str) -> Pin | None:
    """Return the pin of a tag; None if the table has no such tag.

    Raises:
        InvalidRequestError: it cannot be the name of a tag.
    """
    owner = _owner(tag)
    return next((pin for pin in tags_of(services, table) if pin.owner == owner), None)


def tagged(services: Services, table: Table, tag: str) -> Pin:
    """Return the pin of a tag.

    Raises:
        InvalidRequestError: it cannot be the name of a tag.
        NotFoundError: the table has no such tag.
    """
    pin = find_tag(services, table, tag)
    if pin is None:
        there = ", ".join(pin.owner.name for pin in tags_of(services, table)) or "none"
        raise NotFoundError(f"table {table.name!r} has no tag {tag!r}", hint=f"its tags: {there}")
    return pin


def _owner(tag: str) -> PinOwner:
    check_tag(tag)
    return PinOwner(OwnerKind.TAG, tag)
