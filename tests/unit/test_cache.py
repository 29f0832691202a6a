from __future__ import annotations

import pickle

from dormouse.ports import Cache


def test_what_was_used_longest_ago_makes_room() -> None:
    cache = Cache(10)
    cache.put("a", "first", 4)
    cache.put("b", "second", 4)
    assert cache.get("a", str) == "first"
    cache.put("c", "third", 4)
    assert cache.get("b", str) is None
    assert (cache.get("a", str), cache.get("c", str)) == ("first", "third")


def test_a_value_larger_than_the_cache_is_not_kept_and_nothing_goes_for_it() -> None:
    cache = Cache(10)
    cache.put("a", "small", 10)
    cache.put("b", "large", 11)
    assert (cache.get("a", str), cache.get("b", str)) == ("small", None)


def test_values_of_two_types_for_one_path_do_not_meet() -> None:
    cache = Cache(10)
    cache.put("a", "text", 1)
    cache.put("a", 7, 1)
    assert (cache.get("a", str), cache.get("a", int)) == ("text", 7)


def test_a_value_in_the_place_of_another_takes_its_room() -> None:
    cache = Cache(10)
    cache.put("a", "small", 2)
    cache.put("b", "other", 4)
    cache.put("a", "large", 6)
    assert (cache.get("a", str), cache.get("b", str)) == ("large", "other")
    cache.put("a", "small", 2)
    cache.put("c", "third", 4)
    assert [cache.get(path, str) for path in "abc"] == ["small", "other", "third"]


def test_another_process_gets_an_empty_cache_with_the_same_limit() -> None:
    cache = Cache(10)
    cache.put("a", "value", 10)
    sent = pickle.loads(pickle.dumps(cache))
    assert sent.get("a", str) is None
    sent.put("large", "value", 11)
    sent.put("small", "value", 10)
    assert (sent.get("large", str), sent.get("small", str)) == (None, "value")
