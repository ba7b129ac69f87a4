"""Translation units: preamble, vector typedefs, and kernels split for parallel compilation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1] / "headers"
RUNTIME = "runtime.h"
"""What every unit includes."""
HEADERS = (RUNTIME, "vectors.h", "conversions.h", "functions.h", "derived.h")
"""What generated C stands on."""
EXCHANGE = "exchange.h"
"""What kernels stand on that tell other ranks something."""
POOL, SERIAL = "pool.h", "serial.h"
"""What a program stands on besides: threads, or none."""


def headers(*more: str) -> dict[str, str]:
    """The texts of the headers by name, with `more` of them."""
    return {name: (HERE / name).read_text("utf-8") for name in (*HEADERS, *more)}


PREAMBLE = f'#include "{RUNTIME}"\n\n'
_VECTOR = re.compile(r"\b(bf|[iuf])(\d+)x(\d+)")
_COUNT = re.compile(r"x\d+")
"""What ends the name of a vector: a text is searched for it ten times as fast as for the whole."""
_LONGEST = len(" bf16")
"""What stands before that, and tells where the name begins."""


@dataclass(frozen=True)
class Kernel:
    """One function of C."""

    name: str
    """As the IR calls it."""
    symbol: str
    """As C does."""
    text: str
    prototype: str
    location: str
    """Where it comes from, in the user's words."""
    numbers: tuple[int, ...] = ()
    """The numbers that callers pass after the memories, see `hand-numbers`."""
    vectors: tuple[str, ...] = ()
    """The names of the vector types in its text."""

    def call(self, chunk: str, memories: Iterable[str]) -> str:
        """A statement that runs a chunk of it."""
        return f"{self.symbol}({', '.join([chunk, *memories, *map(str, self.numbers)])});"


@dataclass(frozen=True)
class Unit:
    """A translation unit and the kernels in it, by the line where each begins."""

    text: str
    kernels: tuple[tuple[int, Kernel], ...] = ()

    def kernel_at(self, line: int) -> Kernel | None:
        """The kernel that a line of the text belongs to."""
        started = [kernel for first, kernel in self.kernels if first <= line]
        return started[-1] if started else None


WEAK = "__attribute__((weak)) "
"""Several objects of a library may have the same kernel: one of them counts."""


def vectors_in(text: str) -> tuple[str, ...]:
    """The names of the vector types that a text mentions."""
    ends = {text[max(0, it.start() - _LONGEST) : it.end()] for it in _COUNT.finditer(text)}
    return tuple(sorted({found[0] for end in ends for found in _VECTOR.finditer(end)}))


def vector_typedefs(kernels: Iterable[Kernel]) -> str:
    """Declarations of the vector types that kernels mention."""
    names = {name for kernel in kernels for name in kernel.vectors}
    parts = [match.groups() for name in names if (match := _VECTOR.fullmatch(name))]
    found = sorted((letter, int(bits), int(count)) for letter, bits, count in parts)
    return "".join(_vector_typedef(f"{letter}{bits}", bits, count) for letter, bits, count in found)


def _vector_typedef(lanes_name: str, bits: int, count: int) -> str:
    """Declares the vector type, and its form in memory: at any address, aliasing anything."""
    size = bits // 8 * count
    name = f"{lanes_name}x{count}"
    return (
        f"typedef {lanes_name} {name} __attribute__((vector_size({size})));\n"
        f"typedef {lanes_name} {name}_memory "
        f"__attribute__((vector_size({size}), aligned({bits // 8}), may_alias));\n"
    )


def distinct(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Each kernel once: those of one symbol are equal."""
    return list({kernel.symbol: kernel for kernel in kernels}.values())


def also_included(kernels: str) -> tuple[str, ...]:
    """The headers that these kernels need besides those of all."""
    return (EXCHANGE,) if "popgraph_send(" in kernels or "popgraph_receive(" in kernels else ()


def kernel_unit(kernels: Sequence[Kernel]) -> Unit:
    """A translation unit of kernels."""
    texts = "".join(kernel.text for kernel in kernels)
    parts = [
        PREAMBLE,
        *(f'#include "{name}"\n\n' for name in also_included(texts)),
        vector_typedefs(kernels),
        "\n",
    ]
    line, begins = 1 + sum(part.count("\n") for part in parts), []
    for kernel in distinct(kernels):
        begins.append((line, kernel))
        parts.append(f"{WEAK}{kernel.text}\n")
        line += parts[-1].count("\n")
    return Unit("".join(parts), tuple(begins))


LITTLE_TEXT = 20_000
"""Characters that take a compiler about as long as its start: not worth another one."""
UNIT_TEXT = 50_000
"""Characters of a unit that take it several times as long."""
MOST_UNITS = 8


def split(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """
    The kernels in groups of about equal length of text, to be compiled at the same time.

    How many there are does not depend on the machine: caches are shared by machines.
    """
    total = sum(len(kernel.text) for kernel in kernels)
    parts = min(MOST_UNITS, max(2, total // UNIT_TEXT)) if total > LITTLE_TEXT else 1
    groups: list[tuple[int, list[Kernel]]] = [(0, []) for _ in range(parts)]
    for kernel in sorted(distinct(kernels), key=lambda kernel: -len(kernel.text)):
        smallest = min(range(parts), key=lambda number: groups[number][0])
        size, group = groups[smallest]
        groups[smallest] = (size + len(kernel.text), [*group, kernel])
    return (group for _, group in groups if group)
