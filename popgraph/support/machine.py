"""The machine model: what the compiler knows of a processor's vectors, caches and rates."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from popgraph.support import extensions
from popgraph.support.argument_types import check_fields
from popgraph.support.errors import ExtensionError

KIB, MIB = 1 << 10, 1 << 20

PAIRS = ("i16",)
BYTES = ("u8i7", "i8u7", "i16")
AVX2 = ("u8i8_i16", *BYTES, "i8i8_127")
VNNI = ("u8i8", "i8u8", "i16")
BF16 = (*VNNI, "bf16")
"""
Packed words of x86 with SSE2, with AVX-512, with AVX2, with VNNI, and with AVX512-BF16.
"""
DOTPROD = ("i8i8",)
"""Packed words of Arm with SDOT."""

PORTABLE_BYTES = 64
"""
Size of the vectors of partial sums in portable programs, that of AVX-512. Compilers for other
machines split them.
"""


@dataclass(frozen=True)
class Machine:
    """
    All processor parameters of the cost model; the defaults describe a generic AVX-512 core.

    Cycles are core cycles. Rates in bytes per cycle are effective rates during arithmetic, not peak
    bandwidths. The generic figures were measured on a Xeon (family 6, model 85) and a Zen 3; their
    cache sizes are effective ones, see `MEASURED`.
    """

    name: str = "avx512"
    """The name of the preset or compiler target."""
    source: str = "a generic AVX-512 core"
    """The source of the figures."""

    # Registers and arithmetic

    vector_bytes: int = 64
    """Size of a vector register; 1 without vectors."""
    registers: int = 32
    """Number of vector registers, which bounds the register tile and its operands."""
    integer_registers: int = 0
    """Number of registers for integers if it is another one, as on machines without vectors."""
    fmas_per_cycle: int = 2
    """Vector FMAs issued per cycle."""
    fma_latency: float = 4.0
    """Latency of an FMA."""
    fuses_multiply_add: bool = True
    """Whether the processor has FMA, which rounds once and costs no more than a product."""
    words: tuple[str, ...] = BYTES
    """Packed words (`support/words.py`) with faster dot products than f32, best first."""
    vector_load_cycles: float = 1.0
    """Cycles of a vector load during FMAs (measured with 4 to 14 rows of 2 to 6 vectors)."""
    scalar_load_cycles: float = 0.5
    """Cycles of a broadcast scalar load."""
    unaligned_vectors: float = 1.5
    """Cost of an unaligned vector load, in aligned ones."""
    tile_overhead_cycles: float = 25.0
    """Cycles between register tiles: the exit of the inner loop is mispredicted."""
    strided_cycles: float = 1.25
    """Cycles of a load or store of an element not adjacent to the last one."""
    pack_cycles: float = 1.0
    """Cycles per packed element."""
    row_pack_cycles: float = 0.5
    """Cycles per packed element if whole rows are copied."""
    elements_per_cycle: float = 4.0
    """Average elements per cycle of an elementwise kernel, to balance threads."""

    # Caches

    line_bytes: int = 64
    """Size of a cache line."""
    page_bytes: int = 4096
    """Size of a page: prefetchers stop at its end, and cache sets repeat with it."""
    l1_bytes: int = 32 * KIB
    """Size of the L1 data cache."""
    l1_ways_free: int = 6
    """L1 lines per set for scalars next to a panel: the associativity minus two."""
    page_aliases: int = 32
    """Lines at the same page offset that L1 and L2 hold together."""
    pending_stores: int = 64
    """Stores that wait until L1 has their lines, in the order of the program."""
    l2_bytes: int = 1 * MIB
    """Size of the L2 cache of a core."""
    l3_bytes: int = 16 * MIB
    """Effective size of the shared L3 cache."""

    # Rates and latencies

    l2_bpc: float = 28.0
    """Bandwidth from L2 to L1."""
    l2_miss_bpc: float = 4.0
    """Bandwidth from L3 or memory for loads that stall the kernel."""
    l3_bpc: float = 20.0
    """Bandwidth from L3 of streams during FMAs."""
    memory_bpc: float = 8.0
    """Bandwidth from memory of streams during FMAs."""
    local_bpc: float = 24.0
    """Bandwidth of data that the same core wrote."""
    remote_bpc: float = 6.0
    """Bandwidth of data that another core wrote."""
    remote_strided_bpc: float = 2.5
    """Bandwidth of short runs that another core wrote."""
    far_line_cycles: float = 6.0
    """Cycles of a line at least a page away from the last one; closer ones cost less."""
    evicted_scalar_cycles: float = 0.7
    """Cycles of a scalar whose line was evicted from L1 by another row."""
    result_run_cycles: float = 48.0
    """Cycles to fetch a run of adjacent result lines from beyond L2, and to write it back."""
    result_run_lines: int = 4
    """Maximum length of such a run, in lines."""
    lines_together: int = 2
    """Lines that memory delivers together (the adjacent-line prefetcher)."""

    # Prefetching

    prefetch_streams: int = 16
    """Number of distant rows that hardware prefetchers follow concurrently."""
    prefetch_bytes: int = 2560
    """Bytes that a core reads during a memory latency; strides of powers of two are slower."""

    # Threads

    chunk_start_cycles: float = 200.0
    """Cycles for a thread to claim a chunk."""
    cores: int = field(default=1, repr=False)
    """Number of cores, for reports only: programs do not depend on it."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_scalar(self) -> bool:
        """Whether a register holds a single number, as on microcontrollers."""
        return self.vector_bytes <= 4

    def evicted_lines(self, step: int, count: int) -> int:
        """Lines beyond the associativity of L1, of `count` lines at a distance of `step` bytes."""
        # 14 rows at a distance of a page share one set. With 8 ways, six of them stay next to a
        # panel and eight are evicted (case rows-a-page-apart.mlir).
        page, line = self.page_bytes, self.line_bytes
        sets = Counter(row * step % page // line for row in range(count))
        return sum(max(0, lines - self.l1_ways_free) for lines in sets.values())

    def line_elements(self, element_bytes: int) -> int:
        """Elements per cache line."""
        return max(1, self.line_bytes // element_bytes)

    def lanes(self, element_bytes: int) -> int:
        """Elements of a vector register; 1 without vectors."""
        return max(1, self.vector_bytes // element_bytes)

    def with_vectors(
        self, vector_bytes: int, registers: int, words: tuple[str, ...] | None = None
    ) -> Machine:
        """The same caches and rates with other vector registers and packed words."""
        words = self.words if words is None else words
        return replace(self, vector_bytes=vector_bytes, registers=registers, words=words)

    def portable(self) -> Machine:
        """
        The same machine for programs that compute the same bits everywhere.

        Multiply-adds are always fused, and sums of packed words are integers, which are exact.
        """
        words = [name for name in self.words if name != "bf16"]
        exact = tuple(dict.fromkeys([*words, *PAIRS]))
        return replace(self, fuses_multiply_add=True, words=exact)


UNITS: Mapping[str, str] = {
    "bytes": "bytes",
    "cycles": "cycles",
    "bpc": "bytes per cycle",
    "latency": "cycles",
    "vectors": "aligned vectors",
    "lines": "lines",
    "together": "lines",
    "registers": "vectors",
    "streams": "rows",
    "stores": "stores",
    "per_cycle": "per cycle",
    "free": "lines",
    "aliases": "lines",
    "cores": "cores",
    "words": "kinds of words",
    "multiply_add": "true or false",
}
"""{suffix of a field name: unit}."""


def unit_of(name: str) -> str:
    """The unit of a field of `Machine`; "" for text."""
    return next((unit for end, unit in UNITS.items() if f"_{name}".endswith(f"_{end}")), "")


GENERIC = Machine()

MEASURED = (
    "cycles and rates measured with PopGraph's own kernels; cache sizes are effective ones: with "
    "1 MiB for L2 and 16 MiB for L3 the cost model ranks schedules as measurements do"
)
"""The note on presets whose L2 size differs from the data sheet."""


def _generic(name: str, vector_bytes: int, registers: int, words: tuple[str, ...] = ()) -> Machine:
    source = f"a generic core with vectors of {vector_bytes} bytes"
    return replace(GENERIC.with_vectors(vector_bytes, registers, words), name=name, source=source)


TARGETS: Mapping[str, Machine] = {
    each.name: each
    for each in (
        replace(GENERIC, source="a generic core with vectors of 64 bytes"),
        _generic("avx2", 32, 16, AVX2),
        replace(_generic("avx", 32, 16), fuses_multiply_add=False),
        replace(_generic("sse2", 16, 16, PAIRS), fuses_multiply_add=False),
        _generic("neon", 16, 32),
        replace(_generic("baseline", 16, 16), fuses_multiply_add=False),
    )
}
"""
{value of POPGRAPH_TARGET: machine} with generic caches and rates, independent of this machine.
"""

EMBEDDED: Mapping[str, Machine] = {
    each.name: each
    for each in (
        # Arm Cortex-M4 Technical Reference Manual (100166): no vectors and no caches, 32 f32
        # registers. GCC keeps vectors that it has no registers for in memory: DS-CNN takes 15.0
        # million instructions with vectors of four numbers, 5.3 million with scalars.
        replace(
            _generic("armv7e-m", 4, 32, ("u8i8", "i8i8")),
            # Of 13 integer registers, five hold addresses and loop counters.
            integer_registers=8,
            # One instruction at a time: products and loads take a cycle, and overlap nothing.
            fmas_per_cycle=1,
            fma_latency=1.0,
            scalar_load_cycles=1.0,
            unaligned_vectors=1.0,
            strided_cycles=1.0,
            fuses_multiply_add=False,
            l1_bytes=16 * KIB,
            l2_bytes=64 * KIB,
            l3_bytes=256 * KIB,
            source="Arm 100166: scalar registers; generic rates",
        ),
        # rv64gc: 32 registers of numbers, four of them as a vector.
        replace(
            _generic("riscv64", 16, 8),
            fuses_multiply_add=False,
            l2_bytes=512 * KIB,
            l3_bytes=2 * MIB,
            source="rv64gc: four numbers at a time in scalar registers; generic rates",
        ),
        # V8 on x86-64 keeps some of the 16 registers, and each product needs another one. With 13
        # and more, micro-kernels spill: LeNet takes 1.7 times as long, its training step 2.2 times.
        replace(
            _generic("wasm32", 16, 12),
            fuses_multiply_add=False,
            source="measured in Chromium 156 on x86-64; generic rates",
        ),
    )
}
"""Machines without Python, for exported C."""

PRESETS: Mapping[str, Machine] = {
    each.name: each
    for each in (
        replace(GENERIC, name="skylake_server", source=f"Xeon, family 6 model 85: {MEASURED}"),
        replace(
            GENERIC,
            name="rocket_lake",
            words=VNNI,
            source="family 6 model 167: as skylake_server, with VNNI",
        ),
        replace(
            GENERIC.with_vectors(32, 16, AVX2),
            name="zen3",
            source=f"Zen 3, family 25: {MEASURED}",
        ),
        replace(
            GENERIC,
            name="zen4",
            words=BF16,
            # AMD, Software Optimization Guide for the AMD Zen4 Microarchitecture (57647): L1d
            # 32 KiB, 8 ways; L2 1 MiB, 8 ways.
            source="AMD 57647 for the sizes of caches, rates as on zen3",
        ),
        replace(
            GENERIC,
            name="zen5",
            words=BF16,
            # AMD, Software Optimization Guide for the AMD Zen5 Microarchitecture (58455): L1d
            # 48 KiB, 12 ways; L2 1 MiB, 16 ways; two FMAs of 512 bits in a cycle, ready after 4.
            l1_bytes=48 * KIB,
            l1_ways_free=10,
            source="AMD 58455 for the sizes of caches, generic rates",
        ),
        replace(
            GENERIC,
            name="ice_lake_server",
            words=VNNI,
            # Intel support article 000027820 (3rd generation Xeon Scalable): L1d 48 KiB, L2
            # 1.25 MiB, L3 1.5 MiB a core; a program on one core also uses the L3 of the others.
            # Optimization Reference Manual (248966): L1d has 12 ways.
            l1_bytes=48 * KIB,
            l1_ways_free=10,
            l2_bytes=1280 * KIB,
            source="Intel 000027820 for the sizes of caches, generic rates",
        ),
        replace(
            GENERIC,
            name="sapphire_rapids",
            words=BF16,
            # The same article (4th and 5th generation): L1d 48 KiB, L2 2 MiB, L3 1.875 MiB a core.
            l1_bytes=48 * KIB,
            l1_ways_free=10,
            l2_bytes=2 * MIB,
            source="Intel 000027820 for the sizes of caches, generic rates",
        ),
        replace(
            GENERIC.with_vectors(32, 16, AVX2),
            name="skylake_client",
            # Optimization Reference Manual (248966), Skylake client: L1d 32 KiB, 8 ways; L2
            # 256 KiB, 4 ways; L3 up to 2 MiB a core: half of what four cores have.
            l2_bytes=256 * KIB,
            l3_bytes=4 * MIB,
            source="Intel 248966 for the sizes of caches, generic rates",
        ),
        replace(
            GENERIC.with_vectors(16, 32, DOTPROD),
            name="neoverse_n1",
            # Arm Neoverse N1 Core Technical Reference Manual (100616): L1d 64 KiB, 4 ways; L2 up
            # to 1 MiB, 8 ways. Software Optimization Guide: two FMLA of 128 bits in a cycle, ready
            # after 4.
            l1_bytes=64 * KIB,
            l1_ways_free=2,
            source="Arm 100616 for the sizes of caches, generic rates",
        ),
        replace(
            GENERIC.with_vectors(16, 32, DOTPROD),
            name="apple_m1",
            # AnandTech, "Apple Announces The Apple Silicon M1" (16226), Firestorm: L1d 128 KiB, L2
            # 12 MiB for four cores; four units for FMLA of 128 bits, ready after 4. macOS's
            # `sysctl hw`: lines of 128 bytes, pages of 16 KiB.
            line_bytes=128,
            page_bytes=16 * KIB,
            l1_bytes=128 * KIB,
            l2_bytes=3 * MIB,
            l3_bytes=8 * MIB,
            fmas_per_cycle=4,
            source="AnandTech 16226 and sysctl for caches and units, generic rates",
        ),
    )
}
"""Processors by name. If the figures come from a data sheet only, `source` says so."""

MACHINES: Mapping[str, Machine] = {**PRESETS, **TARGETS}
"""{value of POPGRAPH_MACHINE: machine}."""


@dataclass(frozen=True)
class AddedTarget:
    """A target of an extension: a machine, and the compiler flags for it."""

    machine: Machine
    flags: tuple[str, ...] = ()
    """
    Alternative compiler flags, tried in order; without any, code is compiled for this machine, with
    decisions for `machine`.
    """
    macro: str = "__STDC__"
    """A macro that compilers for the target define."""
    compiler: str = "cc"
    """The compiler of exported C."""


ADDED: dict[str, AddedTarget] = {}
"""{name of the machine: target}."""


def add_target(
    machine: Machine,
    flags: tuple[str, ...] = (),
    macro: str = "__STDC__",
    compiler: str = "cc",
) -> None:
    """
    Registers a target for `POPGRAPH_MACHINE` and, with `flags`, for `POPGRAPH_TARGET`.

    `flags` are alternative compiler flags (`-march=znver4`, or several in one text); the first one
    that the compiler supports is used. `macro` is then defined by the compiler. `popgraph export
    --target` accepts the name, too: its Makefile uses the first alternative and `compiler`.
    """
    added = AddedTarget(machine, tuple(flags), macro, compiler)
    taken = machine.name in MACHINES or machine.name in EMBEDDED or machine.name == "native"
    if taken or ADDED.get(machine.name) not in (None, added):
        raise ExtensionError(
            f"target {machine.name!r} exists already",
            "add_target",
            "rename it: replace(machine, name=...)",
        )
    module = sys._getframe(1).f_globals.get("__name__", "__main__")
    extensions.note(module)
    ADDED[machine.name] = added


def added_target(name: str) -> AddedTarget | None:
    """A registered target, loaded from an extension if necessary."""
    if name not in ADDED:
        extensions.load(extensions.TARGETS, name)
    return ADDED.get(name)


def machine_named(name: str) -> Machine | None:
    """The machine for a value of POPGRAPH_MACHINE; None if it is unknown."""
    if name in MACHINES:
        return MACHINES[name]
    added = added_target(name)
    return added.machine if added else None


Kinds = tuple[tuple[str, int, range], ...]

KINDS: Kinds = (
    ("skylake_server", 6, range(85, 86)),
    ("rocket_lake", 6, range(167, 168)),
    ("ice_lake_server", 6, range(106, 107)),
    ("ice_lake_server", 6, range(108, 109)),
    ("sapphire_rapids", 6, range(143, 144)),
    ("sapphire_rapids", 6, range(207, 208)),  # Emerald Rapids has the same cores.
    ("skylake_client", 6, range(78, 79)),
    ("skylake_client", 6, range(94, 95)),
    ("skylake_client", 6, range(142, 143)),  # Kaby Lake, Coffee Lake and Comet Lake likewise.
    ("skylake_client", 6, range(158, 159)),
    ("skylake_client", 6, range(165, 167)),
    ("zen4", 25, range(0x10, 0x20)),
    ("zen4", 25, range(0x60, 0x80)),
    ("zen4", 25, range(0xA0, 0xB0)),
    ("zen3", 25, range(0x10)),
    ("zen3", 25, range(0x20, 0x60)),
    ("zen5", 26, range(0x100)),
)
"""(preset, family, models) of x86 processors, from CPUID or /proc/cpuinfo."""

ARM_PARTS: Mapping[tuple[int, int], str] = {(0x41, 0xD0C): "neoverse_n1"}
"""{(implementer, part) in /proc/cpuinfo: preset} of Arm processors."""


def preset_of(family: int, model: int, *, arm: bool = False) -> Machine | None:
    """The preset of a processor (for `arm`: implementer and part); None if there is none."""
    if arm:
        name = ARM_PARTS.get((family, model))
    else:
        names = (name for name, own, models in KINDS if own == family and model in models)
        name = next(names, None)
    return PRESETS[name] if name else None
