"""Log pages over items, in memory unless others are given, whose every call meets hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from dormouse.items.pages import ItemPages
from dormouse.items.records import ItemPins
from dormouse.items.store import ItemStore
from dormouse.log.pages import Head, Page
from tests.support.memory_items import MemoryItems


def _no_hook(operation: str) -> None:
    """Take the place of a hook."""


def _hooked(name: str, method: Callable[..., Any]) -> Any:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.before(name)
        result = method(self, *args, **kwargs)
        self.after(name)
        return result

    return call


@dataclass
class Log:
    """The log of a table: its head, and its pages by their numbers."""

    head: Head
    pages: dict[int, Page]


class HookedPins(ItemPins):
    """Pins, whose hooks are those of the pages that they belong to."""

    def __init__(self, items: ItemStore, pages: HookedPages) -> None:
        super().__init__(items)
        self.before: Callable[[str], None] = lambda call: pages.before(call)
        self.after: Callable[[str], None] = lambda call: pages.after(call)

    all = _hooked("pins", ItemPins.all)
    put = _hooked("put_pin", ItemPins.put)
    replace = _hooked("replace_pin", ItemPins.replace)
    delete = _hooked("delete_pin", ItemPins.delete)
    clear = _hooked("clear_pins", ItemPins.clear)


class HookedPages(ItemPages):
    """Pages of which `before` and `after` are called with each operation's name.

    What a hook raises reaches the caller: from `before` as of a call that did nothing, from `after`
    as of a call that landed and was not answered. A hook may also act as another writer would.
    """

    def __init__(
        self,
        before: Callable[[str], None] = _no_hook,
        after: Callable[[str], None] = _no_hook,
        items: ItemStore | None = None,
    ) -> None:
        super().__init__(MemoryItems() if items is None else items)
        self.before, self.after = before, after
        self.pins = HookedPins(self._items, self)

    head = _hooked("head", ItemPages.head)
    page = _hooked("page", ItemPages.page)
    append = _hooked("append", ItemPages.append)
    begin = _hooked("begin", ItemPages.begin)
    open_page = _hooked("open_page", ItemPages.open_page)
    set_manifest = _hooked("set_manifest", ItemPages.set_manifest)
    raise_low_water_mark = _hooked("raise_low_water_mark", ItemPages.raise_low_water_mark)
    close = _hooked("close", ItemPages.close)
    delete_pages = _hooked("delete_pages", ItemPages.delete_pages)

    @property
    def logs(self) -> dict[str, Log]:
        """All logs, past the hooks."""
        keys = sorted(item.key for item in self._items.scan("state", ""))
        logs: dict[str, Log] = {}
        for state_id in [key.owner[:-2] for key in keys if key.owner.endswith("#H")]:
            head = ItemPages.head(self, state_id)
            assert head is not None
            logs[state_id] = Log(head, {})
        for key in keys:
            state_id, is_page, _ = key.owner.partition("#0#")
            if is_page and (page := ItemPages.page(self, state_id, int(key.name))):
                logs[state_id].pages[page.number] = page
        return logs

    def lose(self, *state_ids: str) -> None:
        """Lose the heads and pages of some logs, or of all."""
        found = (item.key for item in self._items.scan("state", ""))
        places = {key: key.owner.removesuffix("#H").partition("#0#")[0] for key in found}
        self._items.delete(
            key
            for key, state_id in places.items()
            if state_id != key.owner and (not state_ids or state_id in state_ids)
        )
