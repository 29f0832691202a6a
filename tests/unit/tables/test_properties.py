"""Properties are made of settings, which are checked whenever they were not checked before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dormouse.tables.properties import Properties, properties_of


def test_later_settings_override_earlier_ones() -> None:
    made = properties_of({"compaction_files": 3, "gc_delay_seconds": 1}, {"compaction_files": 4})
    assert made == Properties(compaction_files=4, gc_delay_seconds=1)
    assert properties_of({"compaction_files": 3}, {}) == Properties(compaction_files=3)


@pytest.mark.parametrize("other", [True, 1.0])
def test_a_value_that_equals_a_good_one_of_another_type_is_refused(other: Any) -> None:
    assert properties_of({"gc_delay_seconds": 1}).gc_delay_seconds == other
    with pytest.raises(msgspec.ValidationError):
        properties_of({"gc_delay_seconds": other})
