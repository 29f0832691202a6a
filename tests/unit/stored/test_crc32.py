"""CRC-32 has the values of zlib, with ISA-L and where ISA-L has no wheel."""

from __future__ import annotations

import runpy
import sys
import zlib

import pytest

from dormouse.stored import checksums as module

LENGTHS = (0, 1, 7, 64, 1023, 70_000)


def test_isa_l_computes_it_where_it_is_installed() -> None:
    assert module.crc32.__module__ == "isal.isal_zlib"


@pytest.mark.parametrize("is_installed", [True, False], ids=["with ISA-L", "without"])
def test_values_are_those_of_zlib_also_in_pieces(
    is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed:
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)  # an import of it fails
    crc32 = runpy.run_path(str(module.__file__))["crc32"]
    assert (crc32 is zlib.crc32) == (not is_installed)
    body = bytes(n * n % 251 for n in range(max(LENGTHS)))
    for length in LENGTHS:
        whole = memoryview(body)[:length]
        assert crc32(whole) == zlib.crc32(whole)
        assert crc32(whole[length // 3 :], crc32(whole[: length // 3])) == zlib.crc32(whole)
