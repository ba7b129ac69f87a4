"""Where does a step spend its time? Every call of a kernel with its time, the longest first."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from models import NAMES, light, logits, with_random_weights
from xdsl.dialects.builtin import StringAttr

from popgraph.backends.c import CExecutable, host_target
from popgraph.backends.c import module as printer
from popgraph.backends.c.library import Entry, load
from popgraph.backends.c.toolchain import library
from popgraph.compiler import load as load_model
from popgraph.compiler import lower
from popgraph.dialects.program.attributes import Array
from popgraph.dialects.tile import CallOp, ProgramOp
from popgraph.passes.pipeline import Options

ROUNDS = 15


@dataclass
class Timing:
    """One call: which kernel, from where, and its fastest time in thread-CPU nanoseconds."""

    kernel: str
    location: str
    entry: Entry
    best: int = 2**62


class Profile:
    """A model whose calls can be run one by one, each in the memory that the last one left."""

    def __init__(self, model: object) -> None:
        module, compilation = load_model(model)
        target = host_target()
        lower(
            module,
            compilation,
            replace(Options(), vector_bytes=target.vector_bytes, registers=target.registers),
        )
        self.module = module
        program = printer.find_program(module, "main")
        layout = printer.Layout(program)
        kernels = printer.print_kernels(module)
        singles = [_only(program, number) for number in range(len(_calls(program)))]
        unit = printer.program_unit(program, layout, kernels).text
        unit += "".join(map(_visible, singles))
        unit += "".join(printer.print_program(single, layout) for single in singles)
        path = library([printer.Unit(unit), *map(printer.kernel_unit, printer.split(kernels, 2))])
        prepare, self._whole = load(path, "main")
        self.timings = [
            Timing(
                call.callee.string_value(),
                printer.location_text(call.location),
                load(path, single.sym_name.data)[1],
            )
            for call, single in zip(_calls(program), singles, strict=True)
        ]
        self.total = 2**62
        self._executable = CExecutable(layout.table, (prepare, self._run), compilation.weights, 1)

    def _run(self, memory: int) -> None:
        self.total = min(self.total, _time(self._whole, memory))
        for timing in self.timings:
            timing.best = min(timing.best, _time(timing.entry, memory))

    def measure(self, rounds: int = ROUNDS) -> None:
        inputs: dict[str, Array] = {
            name: np.random.default_rng(0).standard_normal(shape).astype(dtype.numpy)
            for name, (dtype, shape) in self._executable.inputs.items()
        }
        for _ in range(rounds):
            self._executable.run(inputs)

    def table(self, rows: int) -> str:
        lines = [f"{self.total / 1e3:9.1f} us in all, {len(self.timings)} calls"]
        for timing in sorted(self.timings, key=lambda timing: -timing.best)[:rows]:
            share = 100 * timing.best / self.total
            lines.append(
                f"{timing.best / 1e3:9.1f} us {share:5.1f} %  {timing.kernel}  {timing.location}"
            )
        return "\n".join(lines)


def _time(entry: Callable[[int], None], memory: int) -> int:
    start = time.thread_time_ns()
    entry(memory)
    return time.thread_time_ns() - start


def _calls(program: ProgramOp) -> list[CallOp]:
    return [op for op in program.body.block.ops if isinstance(op, CallOp)]


def _only(program: ProgramOp, number: int) -> ProgramOp:
    """The same program with nothing but its call of this number."""
    single = program.clone()
    single.properties["sym_name"] = StringAttr(f"{program.sym_name.data}_call_{number}")
    for at, call in enumerate(_calls(single)):
        if at != number:
            call.detach()
            call.erase()
    for op in reversed(list(single.prepare.block.ops)):
        op.detach()
        op.erase()
    return single


def _visible(program: ProgramOp) -> str:
    name = program.sym_name.data
    return "".join(
        f'__attribute__((visibility("default"))) void {name}_{ending}(void *const *memory);\n'
        for ending in ("prepare", "run")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(NAMES), help="names or .onnx files")
    parser.add_argument("--rows", type=int, default=20, help="how many calls to show")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {0})
    for name in arguments.models:
        known = name in NAMES
        profile = Profile(logits(with_random_weights(light(name))) if known else Path(name))
        profile.measure()
        print(f"## {name}\n{profile.table(arguments.rows)}\n", flush=True)


if __name__ == "__main__":
    main()
