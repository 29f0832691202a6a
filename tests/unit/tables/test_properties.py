"""Properties are made of settings, which are checked whenever they were not checked before."""

from __future__ import annotations

from typing import Any

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.tables.properties import KNOWN, Properties, parse_settings, properties_of


def test_later_settings_override_earlier_ones() -> None:
    made = properties_of({"compaction_files": 3, "gc_delay_seconds": 1}, {"compaction_files": 4})
    assert made == Properties(compaction_files=4, gc_delay_seconds=1)
    assert properties_of({"compaction_files": 3}, {}) == Properties(compaction_files=3)


@pytest.mark.parametrize("other", [True, 1.0])
def test_a_value_that_equals_a_good_one_of_another_type_is_refused(other: Any) -> None:
    assert properties_of({"gc_delay_seconds": 1}).gc_delay_seconds == other
    with pytest.raises(InvalidRequestError, match="must be a whole number"):
        properties_of({"gc_delay_seconds": other})


def test_a_number_beyond_the_bounds_of_its_property_is_refused_by_name() -> None:
    for name, known in KNOWN.items():
        if isinstance(known.default, int):
            parse_settings({name: known.most})
            properties_of({name: known.most})
            for made in (parse_settings, lambda settings: Properties(**settings)):
                with pytest.raises(InvalidRequestError, match=f"{name} must be at most"):
                    made({name: known.most + 1})
