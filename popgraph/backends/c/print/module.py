"""C of a module: a function per kernel, and the translation unit of a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from xdsl.dialects import func
from xdsl.dialects.builtin import MemRefType, ModuleOp

from popgraph.backends.c.print import types
from popgraph.backends.c.print.handed import handed, named
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.program import ENTRIES, print_callees, print_program
from popgraph.backends.c.print.statements import Body
from popgraph.backends.c.print.unit import POOL, SERIAL, Kernel, Unit, distinct, vectors_in
from popgraph.dialects.locations import source
from popgraph.dialects.tile import CallOp, ProgramOp
from popgraph.dialects.tile.loops.known import key_of
from popgraph.support.cache_files import digest
from popgraph.support.errors import PopgraphError

_NUMBER = re.compile(r"_\d+$")
"""What tells kernels of one module apart; their content does that for C."""

_SIZES = re.compile(r"(_\d+(x\d+)*)(?=_[a-z]+\d*$)")
"""The sizes in the names of kernels, see `kernel_functions.describe`."""

DIGITS = 12
"""Of the digest of a kernel's content: one in 2^48 is another's."""


def kernel_name(symbol: str) -> str:
    """The C name of a kernel: its own, kept apart from the names of libc."""
    return "kernel_" + re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", symbol)


def print_kernel(function: func.FuncOp, *, shared: bool = False) -> Kernel:
    """
    One kernel as C; equal ones have the same name in every program.

    One that is `shared` is handed numbers, so that kernels of other sizes are equal.
    """
    location = source(function.location)
    symbol = function.sym_name.data
    numbers = handed(function) if shared else {}
    body = Body(named(numbers))
    parameters = []
    try:
        for number, argument in enumerate(function.body.block.args):
            if isinstance(argument.type, MemRefType):
                body.bind(argument, f"a{number - 1}")
                parameters.append(f"{types.pointer(argument.type)}a{number - 1}")
            else:
                body.bind(argument, "chunk")
                body.natural.add(argument)
                parameters.append(f"{types.value(argument.type)} chunk")
        body.block(function.body.block)
    except PopgraphError as error:
        where = f"kernel {symbol}" + (f", from {location}" if location else "")
        raise type(error)(error.what, error.where or where, error.hint) from error
    parameters += [f"i64 p{at}" for at in range(len(numbers))]
    content = digest(*parameters, *body.lines)[:DIGITS]
    about = _NUMBER.sub("", symbol)
    name = f"{kernel_name(_SIZES.sub('', about) if shared else about)}_{content}"
    prototype = f"void {name}({', '.join(parameters)})"
    text = "\n".join([f"{prototype} {{", *body.lines, "}", ""])
    handed_numbers, vectors = tuple(numbers.values()), vectors_in(text)
    return Kernel(symbol, name, text, prototype, location, handed_numbers, vectors)


def print_kernels(
    module: ModuleOp, *, shared: bool = False, known: Mapping[str, Kernel] = MappingProxyType({})
) -> list[Kernel]:
    """All kernels of a module, see `print_kernel`; those without loops are `known` by their key."""
    kernels = []
    for function in module.ops:
        if isinstance(function, func.FuncOp) and function.body.blocks:
            kernels.append(print_kernel(function, shared=shared))
        elif isinstance(function, func.FuncOp) and (found := known.get(key_of(function))):
            name, location = function.sym_name.data, source(function.location)
            kernels.append(replace(found, name=name, location=location))
    return kernels


def keyed(module: ModuleOp, kernels: Sequence[Kernel]) -> Iterator[tuple[str, Kernel]]:
    """The kernels of a module that have a key, by it."""
    names = {kernel.name: kernel for kernel in kernels}
    for function in module.ops:
        if isinstance(function, func.FuncOp) and (key := key_of(function)):
            yield key, names[function.sym_name.data]


_FRAMES = {
    POOL: f'#define _GNU_SOURCE\n#include "{POOL}"\n\n',
    SERIAL: f'#include "{SERIAL}"\n\n',
}
"""What a program begins with, by what runs the chunks of its kernels."""


def frame_header(module: ModuleOp, threads: int | None = None) -> str:
    """The header that software includes which a program is built into: of the pool if need be."""
    programs = (op for op in module.ops if isinstance(op, ProgramOp))
    calls = (op for program in programs for op in program.walk() if isinstance(op, CallOp))
    is_shared = any(op.chunks.value.data > 1 for op in calls)
    return POOL if is_shared and threads != 1 else SERIAL


def program_unit(
    program: ProgramOp,
    layout: Layout,
    kernels: Sequence[Kernel],
    *,
    commented: bool = False,
    frame: str = POOL,
) -> Unit:
    """
    The translation unit that holds the program; kernels are in others.

    For readers it is `commented`. What is compiled is not: equal programs of models with other
    names are one library.
    """
    prototypes = "".join(f"{kernel.prototype};\n" for kernel in distinct(kernels))
    callees = print_callees(layout, kernels, commented=commented)
    functions = callees + print_program(program, layout, kernels)
    text = f"{visible(program.sym_name.data)}\n{functions}"
    return Unit(f"{_FRAMES[frame]}{prototypes}{text}")


def visible(name: str) -> str:
    """Declares the functions of a program, for others to find in its library."""
    return "".join(
        f'__attribute__((visibility("default"))) void {name}_{ending}({parameters});\n'
        for ending, parameters in ENTRIES.items()
    )
