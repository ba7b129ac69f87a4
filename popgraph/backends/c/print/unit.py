"""Translation units: preamble, vector typedefs, and kernels split for parallel compilation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1] / "headers"
RUNTIME = "runtime.h"
"""The header that every unit includes."""
HEADERS = (RUNTIME, "vectors.h", "conversions.h", "functions.h", "portable.h", "derived.h")
"""The headers of all generated C."""
EXCHANGE = "exchange.h"
"""The header of kernels that exchange data with other ranks."""
POOL, SERIAL = "pool.h", "serial.h"
"""The headers of programs with and without threads."""


def headers(*more: str) -> dict[str, str]:
    """The texts of the headers by name, with `more` of them."""
    return {name: (HERE / name).read_text("utf-8") for name in (*HEADERS, *more)}


PREAMBLE = f'#include "{RUNTIME}"\n\n'
PORTABLE = "POPGRAPH_PORTABLE"
"""The word before kernels that compute the same bits everywhere; it expands to nothing."""
SCHEDULED = "POPGRAPH_SCHEDULED"
"""The macro before kernels with several chains of dependent instructions, which GCC mixes."""
_VECTOR = re.compile(r"\b(bf|[iuf])(\d+)x(\d+)")
_COUNT = re.compile(r"x\d+")
"""The end of the name of a vector: a text is searched ten times as fast for it as for a name."""
_LONGEST = len(" bf16")
"""Characters before that end which are enough to contain the start of the name."""


@dataclass(frozen=True)
class Kernel:
    """A C function."""

    name: str
    """The name in the IR."""
    symbol: str
    """The name in C."""
    text: str
    prototype: str
    location: str
    """The location in the model, as messages name it."""
    numbers: tuple[int, ...] = ()
    """The values that callers pass after the memories, see `hand-numbers`."""
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


WEAK = "POPGRAPH_WEAK "
"""Objects of a library may contain the same kernel; the linker keeps one of them."""


def vectors_in(text: str) -> tuple[str, ...]:
    """The names of the vector types in a text."""
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
    # A window begins at any element, and the arena reuses memory for values of other types.
    return (
        f"typedef {lanes_name} {name} __attribute__((vector_size({size})));\n"
        f"typedef {lanes_name} {name}_memory "
        f"__attribute__((vector_size({size}), aligned({bits // 8}), may_alias));\n"
    )


def distinct(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Each kernel once: equal symbols mean equal kernels."""
    return list({kernel.symbol: kernel for kernel in kernels}.values())


def also_included(kernels: str) -> tuple[str, ...]:
    """The headers that these kernels need besides the common ones."""
    return (EXCHANGE,) if "popgraph_send(" in kernels or "popgraph_receive(" in kernels else ()


def preamble(kernels: str) -> str:
    """The first lines of a unit of these kernels; all or none of them are portable."""
    return f"#define {PORTABLE}\n{PREAMBLE}" if f"{PORTABLE} " in kernels else PREAMBLE


def kernel_unit(kernels: Sequence[Kernel]) -> Unit:
    """A translation unit of kernels."""
    texts = "".join(kernel.text for kernel in kernels)
    parts = [
        preamble(texts),
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


SHORT_TEXT = 2_000
"""Characters of kernels that compile in less time than another compiler takes to start."""
START_TEXT, LOOP_TEXT, CALL_TEXT = 20_000, 500, 3_000
"""
Characters that compile as long as a compiler takes to start and to read the headers, and as a loop
and an inlined function of the headers take besides their text.

gcc 12 on Zen 5: 25 ms, 0.6 ms and 4 ms. In 250 kernels, the error is 2.4 ms, or 3.3 ms by length.
"""
LONG_TEXT = 500_000
"""
Such characters of a unit, which compile in 0.7 s; then progress is reported.

A training step of MobileNetV2 takes gcc 12 6.5 s of CPU, with twice as many 6.7 s, and with half
of them 6.9 s.
"""


def split(kernels: Sequence[Kernel], cores: int, program: int = 0) -> list[list[Kernel]]:
    """
    Groups kernels so that all cores compile for the same time.

    One core also compiles a program of that many characters. More groups would be balanced by the
    pool of compilers, but take longer: quick ResNet-50 on two cores takes 0.21 s with 2 groups,
    0.26 s with 4.
    """
    costs = {kernel: _cost(kernel.text) for kernel in distinct(kernels)}
    total = sum(costs.values())
    most = min(cores * (1 + total // (cores * LONG_TEXT)), 1 + total // START_TEXT)
    groups: list[list[Kernel]] = [[] for _ in range(most)]
    # A program is mostly calls, which compile twice as fast.
    ends = [START_TEXT + program // 2 if program else 0, *[0] * (most - 1)]
    # Longest first, each where it ends first: LPT is within 4/3 of the best (Graham, 1969).
    for kernel in sorted(costs, key=costs.__getitem__, reverse=True):
        starts = [
            end if group else end + START_TEXT for end, group in zip(ends, groups, strict=True)
        ]
        number = starts.index(min(starts))
        ends[number] = starts[number] + costs[kernel]
        groups[number].append(kernel)
    return [group for group in groups if group]


def _cost(text: str) -> int:
    """The compile time of a kernel, in characters of straight code."""
    return len(text) + LOOP_TEXT * text.count("for (") + CALL_TEXT * text.count("popgraph_")


def merge_short(units: Sequence[Unit]) -> Sequence[Unit]:
    """
    A program and its kernels -> one unit. Only if the kernels are short.

    gcc 12 takes 25 ms for each of a program and one kernel, and 26 ms for both together.
    """
    kernels = [unit for unit in units if unit.kernels]
    programs = [unit for unit in units if not unit.kernels]
    if len(kernels) != 1 or len(programs) != 1 or len(kernels[0].text) > SHORT_TEXT:
        return units
    # Kernels come first: the lines of errors, and the first line of portable ones, stay.
    return [Unit(kernels[0].text + programs[0].text, kernels[0].kernels)]
