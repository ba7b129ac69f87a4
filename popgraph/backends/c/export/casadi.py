"""The external function of exported C for CasADi: NAME_casadi.c."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from popgraph.backends.c.export.interface import TYPES, Interface, Weights, c_type
from popgraph.backends.c.memory.table import Slot
from popgraph.support.derivatives import GRADIENT, TANGENT, jacobian_name
from popgraph.support.errors import BackendError
from popgraph.support.shapes import prod

_FOREIGN = ("f16", "bf16", "c64", "c128")
"""Element types that do not convert to double in C."""


def check_casadi(interface: Interface) -> None:
    """BackendError unless the arrays of the main function convert to and from double."""
    if interface.form.weights is Weights.FILE:
        raise BackendError(
            "an external function of CasADi cannot be given the constants",
            "--weights file",
            "use --weights incbin or array with --casadi",
        )
    name = interface.form.name
    if "__" in name or name.startswith("_") or name.endswith("_"):
        raise BackendError(
            f"{name!r} cannot be part of the name of a function of CasADi",
            "--name",
            "leave out leading, trailing and double underscores",
        )
    for _, slot in (*interface.inputs.values(), *interface.outputs.values()):
        assert slot.dtype is not None
        if slot.dtype.name not in TYPES or slot.dtype.name in _FOREIGN or not prod(slot.shape):
            raise BackendError(
                f"{slot.label!r} of type {slot.dtype.name} is not an array of numbers for CasADi",
                "--casadi",
                "use f32, f64 or integer inputs and outputs with at least one element",
            )


@dataclass(frozen=True)
class _Sized:
    """A matrix that a function of CasADi takes or returns."""

    name: str
    rows: int
    columns: int = 1


def _names(matrices: Sequence[_Sized]) -> list[str]:
    """Unique names that CasADi accepts: without double underscores, and none of its own."""
    found = list[str]()
    for at, one in enumerate(matrices):
        name = re.sub("_+", "_", one.name).strip("_")
        found.append(f"{name}_{at}" if name in {*found, "null", "jac", "hess"} else name)
    return found


@dataclass
class _Function:
    """A function of CasADi under construction."""

    symbol: str
    taken: Sequence[_Sized]
    returned: Sequence[_Sized]
    spaces: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    before: str = ""
    """Functions that it calls."""

    def call(self, interface: Interface, sources: Mapping[str, str]) -> str:
        """Calls a function of the model; `sources` maps labels of inputs to arguments."""
        prefix, name = interface.prefix, interface.form.name
        space = interface.verb
        self.spaces.append(f"struct {prefix}_space {space};")
        inputs = [f"at->{space}.in.{member}" for member in interface.inputs]
        outputs = [f"at->{space}.out.{member}" for member in interface.outputs]
        self.lines += [
            f"const {prefix}_inputs {space}_in = {{{', '.join(inputs) or 'NULL'}}};",
            f"const {prefix}_outputs {space}_out = {{{', '.join(outputs) or 'NULL'}}};",
        ]
        for array, (_, slot) in zip(inputs, interface.inputs.values(), strict=True):
            self.lines.append(f"LOAD({sources[slot.label]}, {array}, {prod(slot.shape)});")
        function = f"{name}_{interface.verb}"
        self.lines.append(
            f"if ({function}(&at->self, &{space}_in, &{space}_out) != {name.upper()}_OK) return 1;"
        )
        return space

    def text(self, interface: Interface) -> str:
        """The function, and the functions that describe it."""
        name, macro, symbol = interface.form.name, interface.form.name.upper(), self.symbol
        spaces = "\n    ".join(self.spaces)
        body = "\n    ".join(self.lines)
        return f"""{self.before}
struct {symbol}_space {{
    _Alignas({macro}_ALIGNMENT) char memory[{macro}_MEMORY_BYTES];
    {name} self;
    {spaces}
}};

POPGRAPH_EXPORTED int {symbol}(
    const double **arg, double **res, long long int *iw, double *w, int mem) {{
    struct {symbol}_space *at = (struct {symbol}_space *)aligned(w);
    (void)iw, (void)mem;
    if ({name}_init(&at->self, at->memory) != {macro}_OK) return 1;
    {body}
    return 0;
}}

{"".join(self._described())}"""

    def _described(self) -> Iterator[str]:
        symbol = self.symbol
        for ending, matrices in (("in", self.taken), ("out", self.returned)):
            names = ", ".join(f'"{name}"' for name in _names(matrices))
            dense = ", ".join(f"{{{one.rows}, {one.columns}, 1}}" for one in matrices)
            bound = f"(at < 0 || at >= {len(matrices)})"
            yield f"""\
POPGRAPH_EXPORTED long long int {symbol}_n_{ending}(void) {{ return {len(matrices)}; }}

POPGRAPH_EXPORTED const char *{symbol}_name_{ending}(long long int at) {{
    static const char *const names[] = {{{names}}};
    return {bound} ? NULL : names[at];
}}

POPGRAPH_EXPORTED const long long int *{symbol}_sparsity_{ending}(long long int at) {{
    static const long long int dense[][3] = {{{dense}}};
    return {bound} ? NULL : dense[at];
}}

"""
        yield f"""\
POPGRAPH_EXPORTED int {symbol}_work(
    long long int *sz_arg, long long int *sz_res, long long int *sz_iw, long long int *sz_w) {{
    if (sz_arg) *sz_arg = {len(self.taken)};
    if (sz_res) *sz_res = {len(self.returned)};
    if (sz_iw) *sz_iw = 0;
    if (sz_w) *sz_w = sizeof(struct {symbol}_space) / sizeof(double) + POPGRAPH_SLACK;
    return 0;
}}
"""


def casadi(interface: Interface) -> str:
    """NAME_casadi.c."""
    check_casadi(interface)
    name = interface.form.name
    functions = [_main(interface)]
    found = {one.function: one for one in interface.others}
    if "jacobian" in found:
        functions.append(_jacobian(interface, found["jacobian"]))
    if "jvp" in found:
        functions.append(_forward(interface, found["jvp"]))
    if "vjp" in found:
        functions.append(_reverse(interface, found["vjp"]))
    if "vjp" in found and "hvp" in found:
        functions.append(_second(interface, found["vjp"], found["hvp"]))
    spaces = "".join(map(_space, interface.all))
    return f"""\
/*
 * {name} as an external function of CasADi, with the derivatives that were exported:
 * casadi.external("{name}_casadi", "./{name}_casadi.so"). Each tensor is a column of its elements
 * in row-major order.
 */
#include "{name}.h"

#if defined(_WIN32)
#define POPGRAPH_EXPORTED __declspec(dllexport)
#else
#define POPGRAPH_EXPORTED __attribute__((visibility("default")))
#endif

/* Numbers in the work vector before the first that is aligned, at most. */
#define POPGRAPH_SLACK ({name.upper()}_ALIGNMENT / sizeof(double) + 1)

/* No array means zeros for what is read, and that what is written is not wanted. */
#define LOAD(from, to, count) \\
    for (size_t i = 0; i < (count); i++) (to)[i] = (from) ? (from)[i] : 0
#define STORE(from, to, count) \\
    for (size_t i = 0; (to) && i < (count); i++) (to)[i] = (double)(from)[i]
#define ADD(factor, from, to, count) \\
    for (size_t i = 0; (to) && i < (count); i++) (to)[i] += (factor) * (double)(from)[i]
/* Matrices of CasADi are stored by columns. */
#define STORE_ROWS(from, to, rows, columns) \\
    for (size_t i = 0; (to) && i < (rows) * (columns); i++) \\
        (to)[i % (columns) * (rows) + i / (columns)] = (double)(from)[i]
#define STORE_ZEROS(to, count) \\
    for (size_t i = 0; (to) && i < (count); i++) (to)[i] = 0.0

static void *aligned(double *w) {{
    return (char *)w + (0 - (uintptr_t)w) % {name.upper()}_ALIGNMENT;
}}
{spaces}{"".join(one.text(interface) for one in functions)}"""


def _space(interface: Interface) -> str:
    """The struct of the arrays of a function of the model."""
    groups = ""
    for group, tensors in (("in", interface.inputs), ("out", interface.outputs)):
        arrays = "".join(
            f" {c_type(slot)} {member}[{max(1, prod(slot.shape))}];"
            for member, (_, slot) in tensors.items()
        )
        groups += f"    struct {{{arrays or ' char nothing;'} }} {group};\n"
    return f"\nstruct {interface.prefix}_space {{\n{groups}}};\n"


def _columns(tensors: Mapping[str, tuple[int, Slot]], prefix: str = "") -> list[_Sized]:
    return [_Sized(prefix + member, prod(slot.shape)) for member, (_, slot) in tensors.items()]


def _labels(tensors: Mapping[str, tuple[int, Slot]]) -> list[str]:
    return [slot.label for _, slot in tensors.values()]


def _arguments(labels: Sequence[str], first: int = 0, prefix: str = "") -> dict[str, str]:
    """The argument of each label, from number `first`."""
    return {prefix + label: f"arg[{first + at}]" for at, label in enumerate(labels)}


def _members(interface: Interface) -> dict[str, str]:
    """The member of the struct of outputs for each label."""
    return {slot.label: member for member, (_, slot) in interface.outputs.items()}


def _main(main: Interface) -> _Function:
    made = _Function(f"{main.form.name}_casadi", _columns(main.inputs), _columns(main.outputs))
    space = made.call(main, _arguments(_labels(main.inputs)))
    for at, (member, (_, slot)) in enumerate(main.outputs.items()):
        made.lines.append(f"STORE(at->{space}.out.{member}, res[{at}], {prod(slot.shape)});")
    return made


def _jacobian(main: Interface, jacobian: Interface) -> _Function:
    """jac_F(inputs, outputs): a block for each output and input."""
    taken = [*_columns(main.inputs), *_columns(main.outputs, "out_")]
    blocks = [
        (jacobian_name(y.label, x.label), _Sized(f"jac_{output}_{name}", *map(_size, (y, x))))
        for output, (_, y) in main.outputs.items()
        for name, (_, x) in main.inputs.items()
    ]
    symbol = f"jac_{main.form.name}_casadi"
    made = _Function(symbol, taken, [block for _, block in blocks])
    space = made.call(jacobian, _arguments(_labels(main.inputs)))
    members = _members(jacobian)
    for at, (label, one) in enumerate(blocks):
        sizes = f"{one.rows}, {one.columns}"
        made.lines.append(
            f"STORE_ROWS(at->{space}.out.{members[label]}, res[{at}], {sizes});"
            if label in members
            else f"STORE_ZEROS(res[{at}], {one.rows * one.columns});"
        )
    return made


def _size(slot: Slot) -> int:
    return prod(slot.shape)


def _forward(main: Interface, jvp: Interface) -> _Function:
    """fwd1_F(inputs, outputs, tangents of inputs): the tangents of the outputs."""
    inputs, outputs = _labels(main.inputs), _labels(main.outputs)
    taken = [
        *_columns(main.inputs),
        *_columns(main.outputs, "out_"),
        *_columns(main.inputs, "fwd_"),
    ]
    made = _Function(f"fwd1_{main.form.name}_casadi", taken, _columns(main.outputs, "fwd_"))
    tangents = _arguments(inputs, len(inputs) + len(outputs), TANGENT)
    space = made.call(jvp, _arguments(inputs) | tangents)
    made.lines += _stored(jvp, space, main.outputs, TANGENT)
    return made


def _reverse(main: Interface, vjp: Interface) -> _Function:
    """adj1_F(inputs, outputs, gradients of outputs): the gradients of the inputs."""
    made = _Function(
        f"adj1_{main.form.name}_casadi", _taken_reverse(main), _columns(main.inputs, "adj_")
    )
    space = made.call(vjp, _arguments(_labels(main.inputs)) | _multipliers(main))
    made.lines += _stored(vjp, space, main.inputs, GRADIENT)
    return made


def _taken_reverse(main: Interface) -> list[_Sized]:
    return [
        *_columns(main.inputs),
        *_columns(main.outputs, "out_"),
        *_columns(main.outputs, "adj_"),
    ]


def _multipliers(main: Interface) -> dict[str, str]:
    """The arguments of the reverse function that are gradients of outputs."""
    outputs = _labels(main.outputs)
    return _arguments(outputs, len(main.inputs) + len(outputs), GRADIENT)


def _second(main: Interface, vjp: Interface, hvp: Interface) -> _Function:
    """
    fwd1_adj1_F: the tangents of the gradients of the inputs.

    d(J^T u) = (d<J^T u, v>/dx) + J^T du: a product with the Hessian, and one with the Jacobian.
    The latter is skipped if du is 0, as for the Hessian of a Lagrangian by x.
    """
    inputs, outputs = _labels(main.inputs), _labels(main.outputs)
    taken = [
        *_taken_reverse(main),
        *_columns(main.inputs, "out_adj_"),
        *(_Sized(f"fwd_{one.name}", one.rows) for one in _taken_reverse(main)),
    ]
    symbol = f"fwd1_adj1_{main.form.name}_casadi"
    made = _Function(symbol, taken, _columns(main.inputs, "fwd_adj_"))
    first = 2 * len(inputs) + 2 * len(outputs)
    moved = _arguments(outputs, first + len(inputs) + len(outputs), GRADIENT)
    space = made.call(vjp, _arguments(inputs) | moved)
    made.lines += _stored(vjp, space, main.inputs, GRADIENT)
    changed = " || ".join(
        f"is_nonzero({array}, {prod(slot.shape)})"
        for array, (_, slot) in zip(moved.values(), main.outputs.values(), strict=True)
    )
    zeros = (
        f"STORE_ZEROS(res[{at}], {prod(slot.shape)});"
        for at, (_, slot) in enumerate(main.inputs.values())
    )
    made.lines = [
        f"if ({changed}) {{",
        *(f"    {line}" for line in made.lines),
        "} else {",
        *(f"    {line}" for line in zeros),
        "}",
    ]
    made.before = _IS_NONZERO
    factors = _multipliers(main)
    space = made.call(hvp, _arguments(inputs) | factors | _arguments(inputs, first, TANGENT))
    # The product of a scalar output has no input for the weight, but is linear in it.
    (factor, *_) = [factors[label] for label in factors if label in _labels(vjp.inputs)]
    weighted = any(label in _labels(hvp.inputs) for label in factors)
    factor = "1.0" if weighted else f"({factor} ? {factor}[0] : 0.0)"
    members = _members(hvp)
    for at, (_, slot) in enumerate(main.inputs.values()):
        if member := members.get(TANGENT + GRADIENT + slot.label):
            made.lines.append(
                f"ADD({factor}, at->{space}.out.{member}, res[{at}], {prod(slot.shape)});"
            )
    return made


_IS_NONZERO = """
static int is_nonzero(const double *from, size_t count) {
    for (size_t i = 0; from && i < count; i++)
        if (from[i] != 0.0) return 1;
    return 0;
}
"""


def _stored(
    interface: Interface, space: str, tensors: Mapping[str, tuple[int, Slot]], prefix: str
) -> Iterator[str]:
    """Stores an output for each tensor, or zeros where it is not differentiated."""
    members = _members(interface)
    for at, (_, slot) in enumerate(tensors.values()):
        member = members.get(prefix + slot.label)
        yield (
            f"STORE(at->{space}.out.{member}, res[{at}], {prod(slot.shape)});"
            if member
            else f"STORE_ZEROS(res[{at}], {prod(slot.shape)});"
        )
