"""Classes that several threads of a process meet for the first time, all at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

MEET_AT_ONCE = """
from __future__ import annotations

import threading
import msgspec
from dormouse.model.decoding import convert_plain, decode_json

begun, over = threading.Event(), threading.Event()

def number():
    begun.set()
    over.wait(0.5)  # the other thread is done by then, if nothing holds it up
    return int

class Inner(msgspec.Struct):
    number: number()  # looked at when half of Outer is known

class Outer(msgspec.Struct):
    first: Inner
    second: Inner

calls = {
    "decode_json": lambda: decode_json('{"first": {"number": 1}, "second": {"number": 2}}', Outer),
    "convert_plain": lambda: convert_plain({n: {"number": i} for n, i in NUMBERS.items()}, Outer),
}
NUMBERS = {"first": 1, "second": 2}
found = []
one = threading.Thread(target=lambda: found.append(calls["CALL"]()))
one.start()
begun.wait()
found.append(calls["CALL"]())
over.set()
one.join()
assert found == [Outer(Inner(1), Inner(2))] * 2, found
"""


@pytest.mark.parametrize("call", ["decode_json", "convert_plain"])
def test_a_thread_does_not_take_what_another_knows_of_a_class_by_half(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", MEET_AT_ONCE.replace("CALL", call)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
