"""Descriptions of memory and arenas. PopGraph plans memory itself and reads none of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from popgraph.ort.errors import UnknownOption
from popgraph.ort.logs import note


class OrtAllocatorType(IntEnum):
    """The kind of an allocator."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """The use of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    DEFAULT = 0


class OrtMemoryInfo:
    """The memory of a device: its name, allocator, number and use."""

    def __init__(
        self,
        name: str,
        allocator_type: OrtAllocatorType,
        device_id: int,
        mem_type: OrtMemType,
    ) -> None:
        self.name = name
        self.allocator_type = allocator_type
        self.device_id = device_id
        self.mem_type = mem_type
        self.device_mem_type = 0
        """The default memory of the device."""
        self.device_vendor_id = 0
        """No vendor: the CPU."""


CPU_MEMORY = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)
"""The memory of all inputs and outputs."""


class OrtArenaCfg:
    """The sizes of an arena, as four numbers or as a dict; -1 is the default."""

    max_mem = 0
    arena_extend_strategy = -1
    initial_chunk_size_bytes = -1
    max_dead_bytes_per_chunk = -1
    initial_growth_chunk_size_bytes = -1
    max_power_of_two_extend_bytes = -1

    def __init__(self, *sizes: int | Mapping[str, int]) -> None:
        names = [name for name in vars(OrtArenaCfg) if not name.startswith("_")]
        first = sizes[0] if sizes else {}
        given = first if isinstance(first, Mapping) else dict(zip(names, sizes, strict=False))
        for name, size in given.items():
            if name not in names:
                raise UnknownOption(
                    f"OrtArenaCfg has no option {name!r}", hint=f"it has {', '.join(names)}"
                )
            setattr(self, name, size)


def create_and_register_allocator(
    mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None = None
) -> None:
    """Accepts an allocator that sessions could share."""
    note("create_and_register_allocator has no effect: each program plans its memory")
