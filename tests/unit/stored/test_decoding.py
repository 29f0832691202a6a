"""Forms that several threads decode for the first time at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.waiting import LIMIT_SECONDS

MEET_AT_ONCE = """
from __future__ import annotations

import threading
import msgspec
from dormouse.stored import decoding
from dormouse.stored.decoding import convert_plain, decode_json

begun, over = threading.Event(), threading.Event()

class Lock:
    lock = threading.Lock()

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            over.set()  # the other thread is held up, as it should be
            self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()

decoding._LOCK = Lock()

def number():
    begun.set()
    assert over.wait(LIMIT)  # the other thread is done then, if nothing holds it up
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
def test_a_thread_does_not_use_a_half_built_decoder_of_another(call: str) -> None:
    program = MEET_AT_ONCE.replace("CALL", call).replace("LIMIT", str(LIMIT_SECONDS))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
