"""A profile of a program: the time, work and memory of every call of a kernel."""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc, ModuleOp, NameLoc
from xdsl.ir import Attribute

from popgraph import compiler
from popgraph.backends.c.print.layout import find_program
from popgraph.backends.c.run.profile import Profile
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, bytes_touched
from popgraph.dialects.tile.program.work import Counter
from popgraph.measure.profile_report import Call, Report
from popgraph.measure.timing import random_model_inputs
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options


def report(
    name: str,
    module: ModuleOp,
    compilation: Compilation,
    threads: int,
    rounds: int,
    options: Options | None = None,
) -> Report:
    """Compiles the module in place, or a step that trains it, and measures it on random inputs."""
    wanted = compiler.for_this_machine(options or Options(), threads)
    compiler.lower(module, compilation, wanted)
    measured = Profile(module, compilation.weights, threads)
    measured.measure(random_model_inputs(measured.executable.inputs), rounds)
    return _described(name, module, measured, threads)


def _described(name: str, module: ModuleOp, measured: Profile, threads: int) -> Report:

    program, counter = find_program(module, "main"), Counter(module)
    whole = sum(measured.times) or 1
    in_use = bytes_in_use(program, counter)
    calls = [
        Call(
            kernel=call.label,
            source=source(call.location),
            microseconds=time / 1e3,
            share=time / whole,
            flops=counter.call(call).flops,
            moved=bytes_touched([argument.owner for argument in call.arguments]),
            in_use=used,
        )
        for call, time, used in zip(measured.calls, measured.times, in_use, strict=True)
    ]
    return Report(
        model=name,
        threads=threads,
        microseconds=measured.total / 1e3,
        arena=program.arena.value.data,
        largest_live_set=max(in_use, default=0),
        persistent=program.persistent.value.data,
        calls=calls,
    )


def source(location: Attribute | None) -> str:
    """The user's name for an operation, and the line where it was written."""
    match location:
        case NameLoc():
            return f"{location.desc.data}  {source(location.location)}".strip()
        case FileLineColLoc():
            return f"{Path(location.filename.data).name}:{location.line.data}"
    return ""
