"""C of one kernel: a function of its statements."""

from __future__ import annotations

import re
from collections import Counter

from xdsl.dialects import func
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import Block

from popgraph.backends.c.print import types
from popgraph.backends.c.print.statements import INDEX, Body
from popgraph.backends.c.print.unit import PORTABLE, SCHEDULED, Kernel, vectors_in
from popgraph.dialects.locations import source
from popgraph.dialects.tile.loops.known import is_portable
from popgraph.dialects.tile.scalars import is_approximated
from popgraph.support.cache_files import digest
from popgraph.support.errors import PopgraphError

_NUMBER = re.compile(r"_\d+$")
"""The number that distinguishes kernels of a module; their C names have a digest instead."""

_SIZES = re.compile(r"(_\d+(x\d+)*)(?=_[a-z]+\d*$)")
"""The sizes in the names of kernels, see `kernel_functions.describe`."""

DIGITS = 12
"""Hexadecimal digits of a kernel's digest: two kernels collide with probability 2^-48."""


def kernel_name(symbol: str) -> str:
    """The C name of a kernel, with a prefix that no name of libc has."""
    return "kernel_" + re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", symbol)


def _has_chains(function: func.FuncOp) -> bool:
    """
    Whether a block computes several functions of vectors, and no loop carries vectors.

    GCC would spill the sums of a loop that it schedules: a product takes twice as long on AVX2.
    """
    functions = Counter[Block | None]()
    for op in function.walk():
        in_vectors = any(isinstance(result.type, VectorType) for result in op.results)
        if in_vectors and op.regions:
            return False
        if in_vectors and is_approximated(op):
            functions[op.parent] += 1
    return max(functions.values(), default=0) > 1


def print_kernel(function: func.FuncOp, *, shared: bool = False, index: str = INDEX) -> Kernel:
    """
    Prints a kernel as C; equal kernels have the same name in every program.

    If `shared`, constants marked by hand-numbers become parameters, so that kernels of other sizes
    are equal. `index` is the C type of indices.
    """
    location = source(function.location)
    symbol = function.sym_name.data
    body = Body(shared=shared, index=index)
    parameters = []
    try:
        for number, argument in enumerate(function.body.block.args):
            if isinstance(argument.type, MemRefType):
                body.bind(argument, f"a{number - 1}")
                parameters.append(f"{types.pointer(argument.type)}a{number - 1}")
            else:
                body.bind(argument, "chunk")
                body.non_negative.add(argument)
                parameters.append(f"{body.type_of(argument)} chunk")
        body.block(function.body.block)
    except PopgraphError as error:
        where = f"kernel {symbol}" + (f", from {location}" if location else "")
        raise type(error)(error.what, error.where or where, error.hint) from error
    parameters += [f"{index} p{at}" for at in range(len(body.numbers))]
    # A digest instead of a number: layers and models that need the same C share an object file.
    mark = f"{PORTABLE} " if is_portable(function) else ""
    mark += f"{SCHEDULED} " if _has_chains(function) else ""
    content = digest(*mark.split(), *parameters, *body.lines)[:DIGITS]
    about = _NUMBER.sub("", symbol)
    name = f"{kernel_name(_SIZES.sub('', about) if shared else about)}_{content}"
    prototype = f"void {name}({', '.join(parameters)})"
    text = "\n".join([f"{mark}{prototype} {{", *body.lines, "}", ""])
    numbers = tuple(body.numbers[at] for at in range(len(body.numbers)))
    vectors = vectors_in(text)
    return Kernel(symbol, name, text, prototype, location, numbers, vectors)
