"""Reads the machine type from the header of an ELF file."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

_HEAD = 20
_NAMES = {
    (1, 3): "i386", (2, 62): "x86_64", (1, 62): "x32", (1, 40): "arm", (2, 183): "aarch64",
    (1, 8): "mips", (2, 8): "mips64", (1, 20): "powerpc", (2, 21): "powerpc64", (2, 22): "s390x",
    (1, 243): "riscv32", (2, 243): "riscv64", (2, 258): "loongarch64",
}  # fmt: skip
"""Machine names by address width (1: 32 bits, 2: 64 bits) and ELF machine number."""
_ORDERS = {1: "<", 2: ">"}


def machine_of(path: Path) -> str:
    """The name of the machine; empty if the file is not ELF."""
    with suppress(OSError, struct.error, KeyError):
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head[:4] == b"\x7fELF":
            order = _ORDERS[head[5]]
            (number,) = struct.unpack(f"{order}H", head[18:20])
            name = _NAMES.get((head[4], number), f"machine {number} of ELF")
            return f"{name}, big-endian" if order == ">" and number != 22 else name
    return ""
