"""Runs static aarch64 Linux executables in the emulator Unicorn."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = 4096
STACK, STACK_BYTES = 0x7F00_0000_0000, 8 << 20
HEAP, MAPPED = 0x1000_0000_0000, 0x2000_0000_0000
"""The first addresses of `brk` and `mmap`."""
PHDR, PHENT, PHNUM, PAGESZ, ENTRY, RANDOM = 3, 4, 5, 6, 9, 25
"""Linux's numbers of the entries of the auxiliary vector (`AT_PHDR` and so on)."""
SVC = 2
"""The exception number of a system call."""


@dataclass
class Process:
    """A loaded executable, whose files are in one folder."""

    binary: Path
    folder: Path
    exit_code: int | None = None
    said: bytes = b""
    """The bytes written to stdout and stderr."""
    _top: int = HEAP
    _next: int = MAPPED
    _files: dict[int, int] = field(default_factory=dict)

    def run(self) -> int:
        """Runs the program to its end, and returns its exit code."""
        unicorn = import_module("unicorn")
        self._names = import_module("unicorn.arm64_const")
        self.cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.cpu.ctl_set_cpu_model(self._names.UC_CPU_ARM64_MAX)
        self._set("CPACR_EL1", 3 << 20)  # Enables vector instructions.
        entry = self._load()
        self.cpu.hook_add(unicorn.UC_HOOK_INTR, self._interrupted)
        try:
            self.cpu.emu_start(entry, 0)
        finally:
            for handle in self._files.values():
                os.close(handle)
        assert self.exit_code is not None, self.said
        return self.exit_code

    def _set(self, name: str, value: int) -> None:
        self.cpu.reg_write(getattr(self._names, f"UC_ARM64_REG_{name}"), value)

    def register(self, name: str) -> int:
        found: int = self.cpu.reg_read(getattr(self._names, f"UC_ARM64_REG_{name}"))
        return found

    # Memory

    def _load(self) -> int:
        """Maps the segments and a stack, and returns the entry address."""
        content = self.binary.read_bytes()
        assert content[:5] == b"\x7fELF\x02" and content[16:18] == b"\x02\x00", "static, 64 bits"
        entry, headers = struct.unpack_from("<QQ", content, 24)
        size, count = struct.unpack_from("<HH", content, 54)
        at = None
        for number in range(count):
            kind, _, offset, address, _, stored, used, _ = struct.unpack_from(
                "<IIQQQQQQ", content, headers + number * size
            )
            if kind != 1:
                continue
            self._map(address, used)
            self.cpu.mem_write(address, content[offset : offset + stored])
            at = address + headers - offset if offset <= headers < offset + stored else at
        self._map(STACK, STACK_BYTES)
        facts = {PHDR: at or 0, PHENT: size, PHNUM: count, PAGESZ: PAGE, ENTRY: entry}
        self._set("SP", self._arguments(facts))
        return int(entry)

    def _arguments(self, about: Mapping[int, int]) -> int:
        """Writes the initial stack: the program's name, no environment, the auxiliary vector."""
        name = STACK + STACK_BYTES - PAGE
        self.cpu.mem_write(name, b"program\0".ljust(32, b"\0"))
        facts = [*about.items(), (RANDOM, name + 16), (0, 0)]
        words = [1, name, 0, 0, *(word for pair in facts for word in pair)]
        top = name - 8 * len(words) & -16
        self.cpu.mem_write(top, struct.pack(f"<{len(words)}Q", *words))
        return top

    def _map(self, address: int, size: int) -> None:
        """Maps the pages of a range that are not mapped yet."""
        begin, end = address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE
        for first, last, _ in self.cpu.mem_regions():
            if first <= begin <= last:
                begin = last + 1
        if begin < end:
            self.cpu.mem_map(begin, end - begin)

    # System calls

    def _interrupted(self, _: Any, number: int, __: Any) -> None:
        if number != SVC:
            self.exit_code = -number
            self.cpu.emu_stop()
            return
        call = self.register("X8")
        given = [self.register(f"X{place}") for place in range(6)]
        known = CALLS.get(call)
        try:
            result = known(self, *given) if known else -errno.ENOSYS
        except OSError as error:
            result = -(error.errno or errno.EIO)
        self._set("X0", result & (1 << 64) - 1)

    def _text(self, address: int) -> str:
        found = bytearray()
        while (byte := self.cpu.mem_read(address + len(found), 1)) != b"\0":
            found += byte
        return found.decode()

    def open(self, _: int, path: int, flags: int, mode: int, *__: int) -> int:
        handle = os.open(self.folder / self._text(path), flags & 0o3103, mode & 0o777 or 0o600)
        number = 3 + len(self._files)
        self._files[number] = handle
        return number

    def seek(self, number: int, offset: int, whence: int, *_: int) -> int:
        return os.lseek(self._files[number], _signed(offset), whence)

    def read(self, number: int, pieces: int, count: int, *_: int) -> int:
        done = 0
        for address, size in self._pieces(pieces, count):
            content = os.read(self._files[number], size)
            self.cpu.mem_write(address, content)
            done += len(content)
            if len(content) < size:
                break
        return done

    def write(self, number: int, pieces: int, count: int, *_: int) -> int:
        parts = self._pieces(pieces, count)
        content = b"".join(bytes(self.cpu.mem_read(at, size)) for at, size in parts)
        if number < 3:
            self.said += content
            return len(content)
        return os.write(self._files[number], content)

    def _pieces(self, vector: int, count: int) -> Sequence[tuple[int, int]]:
        words = struct.unpack(f"<{2 * count}Q", self.cpu.mem_read(vector, 16 * count))
        return list(zip(words[::2], words[1::2], strict=True))

    def brk(self, wanted: int, *_: int) -> int:
        if wanted > self._top:
            self._map(self._top, wanted - self._top)
            self._top = wanted
        return self._top

    def mmap(self, _: int, size: int, *__: int) -> int:
        address, pages = self._next, -(-size // PAGE)
        self.cpu.mem_map(address, pages * PAGE)
        self._next += (pages + 1) * PAGE
        return address

    def end(self, code: int, *_: int) -> int:
        self.exit_code = code
        self.cpu.emu_stop()
        return 0


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _plain(call: Callable[..., int]) -> Callable[..., int]:
    """`read` or `write` with a single buffer, by way of `readv` or `writev`."""

    def whole(process: Process, number: int, address: int, size: int, *_: int) -> int:
        below = process.register("SP") - PAGE & -16
        process.cpu.mem_write(below, struct.pack("<QQ", address, size))
        return call(process, number, below, 1)

    return whole


def _nothing(*_: object) -> int:
    return 0


CALLS: Mapping[int, Callable[..., int]] = {
    29: lambda *_: -errno.ENOTTY,  # ioctl
    56: Process.open,
    57: _nothing,  # close
    62: Process.seek,
    63: _plain(Process.read),
    64: _plain(Process.write),
    65: Process.read,  # readv
    66: Process.write,  # writev
    93: Process.end,  # exit
    94: Process.end,  # exit_group
    96: lambda *_: 1,  # set_tid_address
    98: _nothing,  # futex
    99: _nothing,  # set_robust_list
    134: _nothing,  # rt_sigaction
    135: _nothing,  # rt_sigprocmask
    214: Process.brk,
    215: _nothing,  # munmap
    222: Process.mmap,
    226: _nothing,  # mprotect
}
"""The system calls that programs with a C library make, by their numbers on aarch64."""
