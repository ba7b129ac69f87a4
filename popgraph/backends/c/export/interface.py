"""The interface of exported C: a header with two structs of arrays, sizes and functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from popgraph.backends.c.export.image import ALIGNMENT, Image, size_of
from popgraph.backends.c.export.names import members
from popgraph.backends.c.export.targets import ExportTarget
from popgraph.backends.c.memory.table import Slot
from popgraph.backends.tools import Step
from popgraph.support.memo import cached_property
from popgraph.support.shapes import prod, text
from popgraph.support.sizes import Size, SizedAxis

TYPES = {
    "f32": "float",
    "f64": "double",
    "c64": "float",
    "c128": "double",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "f16": "uint16_t",
    "bf16": "uint16_t",
}
"""C types of elements; others take a byte. f16 and bf16 are bits, complex numbers are pairs."""


class Weights(StrEnum):
    """The place of the constants of exported C."""

    INCBIN = "incbin"
    ARRAY = "array"
    FILE = "file"


@dataclass(frozen=True)
class Form:
    """The resolved options of exported C."""

    target: ExportTarget
    name: str = "model"
    weights: Weights = Weights.INCBIN
    threads: int = 1
    malloc: bool = True
    train: bool = False
    """Whether the program is a step of training."""
    casadi: bool = False
    """Whether there is an external function for CasADi."""
    package: str = ""
    """The kind of package; empty: plain C."""
    version: str = "1.0.0"
    """The version of the package, and of the one for CMake."""
    portable: bool = False
    """Whether kernels compute the same bits on every target."""
    optimize: str = "speed"
    """The goal of the program, see `Options.optimize`."""

    @property
    def index(self) -> str:
        """The C type of indices: of the machine's width, as 64 bits are slow on 32-bit machines."""
        small = self.optimize != "speed" or self.target.machine.is_scalar
        return "isize" if small else "i64"

    @property
    def verb(self) -> str:
        """The name of the function that computes."""
        return "step" if self.train else "run"


@dataclass(frozen=True)
class Interface:
    """The interface of an exported program: its structs' members and options."""

    form: Form
    image: Image
    pooled: bool
    """Whether a thread pool runs kernels."""
    function: str = ""
    """The function's name after the prefix, and the prefix of its programs; empty: the main one."""
    meaning: str = ""
    """A sentence on the results of another function than the main one."""
    first: int = 0
    """The number of its first slot in the model's table."""
    others: tuple[Interface, ...] = ()
    """The other functions of the model."""
    step: Step | None = None
    """The training step that the main function is."""
    update: Interface | None = None
    """The update after several steps, which the main function runs."""

    @property
    def all(self) -> tuple[Interface, ...]:
        """The main function and the others."""
        return self, *self.others

    @property
    def programs(self) -> tuple[Interface, ...]:
        """All functions, and the update that no caller sees."""
        return self.all if self.update is None else (*self.all, self.update)

    @property
    def verb(self) -> str:
        """The name of the function after the prefix."""
        return self.function or self.form.verb

    @property
    def prefix(self) -> str:
        """The prefix of the function's structs."""
        return f"{self.form.name}_{self.function}" if self.function else self.form.name

    @property
    def ram_bytes(self) -> int:
        """The memory of all functions, which share it."""
        return max(one.image.ram_bytes for one in self.programs)

    @property
    def state_bytes(self) -> int:
        """Bytes of the variables of all functions, at the start of memory."""
        return max(one.image.state_bytes for one in self.programs)

    @property
    def slots(self) -> int:
        """The number of pointers in a model; the last one of a training step points to ROM."""
        return sum(len(one.image.table.slots) for one in self.programs) + (self.step is not None)

    @cached_property
    def inputs(self) -> dict[str, tuple[int, Slot]]:
        """The number and slot of each input, by member of the struct of inputs."""
        return self._named("input")

    @cached_property
    def outputs(self) -> dict[str, tuple[int, Slot]]:
        """The number and slot of each output, without index checks."""
        return self._named("output")

    @cached_property
    def variables(self) -> dict[str, tuple[int, Slot]]:
        """The number and slot of each variable of the step and its update, in memory order."""
        found = dict[str, tuple[int, Slot]]()
        for one in () if self.function else filter(None, (self, self.update)):
            table = one.image.table
            for label, number in table.named("variable").items():
                found.setdefault(label, (one.first + number, table.slots[number]))
        spelled = members(found)
        return {spelled[label]: held for label, held in found.items()}

    @cached_property
    def sizes(self) -> dict[str, tuple[int, Size]]:
        """The sizes of a call, by member of the struct of sizes; none in a static program."""
        table = self.image.table
        spelled, numbers = members(size.name for size in table.sizes), table.named("input")
        return {spelled[size.name]: (numbers[size.name], size) for size in table.sizes}

    @property
    def accumulators(self) -> list[tuple[int, Slot]]:
        """The number and slot of each sum of gradients; none if C has no type for one."""
        names = () if self.step is None else self.step.accumulators
        found = [held for held in self.variables.values() if held[1].label in names]
        known = {slot.dtype.name for _, slot in found if slot.dtype is not None} <= {"f32", "f64"}
        return found if known else []

    def bound(self, member: str) -> str:
        """The name of the macro for a size's bound."""
        alike = [one for one in self.sizes if one.upper() == member.upper()]
        number = f"_{alike.index(member) + 1}" if member != alike[0] else ""
        return f"{self.form.name}_{member}{number}_max".upper()

    def axes(self, slot: Slot) -> dict[int, tuple[str, SizedAxis]]:
        """The axes of a tensor that end at sizes, with the size's member."""
        return {
            place.axis: (member, place)
            for member, (_, size) in self.sizes.items()
            for place in {"input": size.inputs, "output": size.outputs}.get(slot.space, ())
            if place.tensor == slot.label
        }

    def _named(self, space: str) -> dict[str, tuple[int, Slot]]:
        table = self.image.table
        hidden = {
            "input": {size.name for size in table.sizes},
            "output": {check.output for check in table.checks},
        }.get(space, set())
        numbers = {
            label: number for label, number in table.named(space).items() if label not in hidden
        }
        spelled = members(numbers)
        return {spelled[label]: (number, table.slots[number]) for label, number in numbers.items()}

    @property
    def given(self) -> str:
        """The parameter of functions that take the weights."""
        return ", const void *weights" if self.form.weights is Weights.FILE else ""


def header(interface: Interface, memory: str = "", deltas: str = "") -> str:
    """NAME.h, with comments on the use of memory, and declarations of deltas."""
    form, image = interface.form, interface.image
    name, macro = form.name, form.name.upper()
    tensors = [
        slot for one in interface.all for _, slot in [*one.inputs.values(), *one.outputs.values()]
    ]
    rank = max((len(slot.shape) for slot in tensors), default=1)
    return f"""\
/*
 * {name}: a neural network as C11, made by PopGraph for {form.target.name}.
 *
 * Call {name}_init once, then {name}_{form.verb} as often as you like. All memory is the caller's:
 * {macro}_MEMORY_BYTES of RAM for each model, beside {macro}_WEIGHTS_BYTES of constants, which
 * all models share. Models do not know of each other, so that threads may run one each.
{memory} */
#ifndef {macro}_H
#define {macro}_H

#include <stddef.h>
#include <stdint.h>

#define {macro}_MEMORY_BYTES {max(interface.ram_bytes, 1)}
#define {macro}_WEIGHTS_BYTES {image.rom_bytes}
#define {macro}_ALIGNMENT {ALIGNMENT} /* Where both must begin: at a multiple of this. */
#define {macro}_RANK {max(rank, 1)} /* The most axes that a tensor has. */
{_bounds(interface)}{_period(interface)}
#ifdef __cplusplus
extern "C" {{
#endif

/* What functions return. */
enum {{
    {macro}_OK = 0,
    {macro}_UNALIGNED = 1, /* Memory does not begin where it must. */
    {_codes(interface)}
}};

/* A model; only its functions look inside. */
typedef struct {{
    void *slots[{interface.slots}];
}} {name};
{_sizes(interface)}
{_arrays(interface)}
/* One of these arrays, in words. */
typedef struct {{
    const char *name; /* As the network has it. */
    const char *type; /* f32, i64, ...; f16 and bf16 are bits, less than a byte has one. */
    size_t elements, bytes, rank, shape[{macro}_RANK];
{_tensor_sizes(interface)}}} {name}_tensor;
{_size(interface)}
/* Everything that can be asked of the network; tensors are in the order of the structs above. */
typedef struct {{
    const char *name, *target;
    size_t memory_bytes, weights_bytes, alignment;
    size_t input_count, output_count;
    const {name}_tensor *inputs, *outputs;
{_described_variables(interface)}{_described_sizes(interface)}}} {name}_description;

extern const {name}_description {name}_about;

{_functions(interface)}{deltas}{"".join(map(_other, interface.others))}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _arrays(interface: Interface) -> str:
    """The structs of inputs and outputs of a function."""
    prefix, name = interface.prefix, f"{interface.form.name}_{interface.verb}"
    return f"""\
/* The arrays that {name} reads. They may begin anywhere that their elements may. */
typedef struct {{
{_struct(interface, interface.inputs, "const ")}
}} {prefix}_inputs;

/* The arrays that {name} writes; they overlap nothing. */
typedef struct {{
{_struct(interface, interface.outputs, "")}
}} {prefix}_outputs;
"""


def _other(interface: Interface) -> str:
    """The structs and the declaration of a function beside the main one."""
    name = interface.form.name
    return f"""
{_arrays(interface)}
extern const {name}_description {interface.prefix}_about;

/*
 * {interface.meaning}
 * It uses the same memory as {name}_{interface.form.verb}, and allocates nothing.
 */
int {interface.prefix}(
    {parameters(interface)});
"""


MEANING = {
    "run": "Computes the outputs of the inputs.",
    "step": "Trains on the inputs: computes the outputs, the loss among them, and moves weights.",
}
"""The first sentence on the main function."""


def _described_variables(interface: Interface) -> str:
    """The description's members for variables; empty without variables."""
    if not interface.variables:
        return ""
    name = interface.form.name
    return f"    size_t variable_count;\n    const {name}_tensor *variables;\n"


def _functions(interface: Interface) -> str:
    name, macro = interface.form.name, interface.form.name.upper()
    given, verb = interface.given, interface.form.verb
    file = (
        f" `weights` is what {name}_weights.bin holds, which may be mapped or in flash memory."
        if given
        else ""
    )
    found = f"""\
/* Makes a model of {macro}_MEMORY_BYTES of memory.{file} */
int {name}_init({name} *self, void *memory{given});

/* {MEANING[verb]}{_accumulation(interface)} It allocates nothing. */
int {name}_{verb}(
    {parameters(interface)});
"""
    if interface.accumulators and interface.step is not None:
        of = "mean" if interface.step.is_mean else "sum"
        found += f"""
/*
 * Updates the weights before the {macro}_ACCUMULATE-th call, by the {of} of the gradients so far;
 * does nothing directly after an update. The next call begins anew.
 */
void {name}_update({name} *self);
"""
    if state := interface.state_bytes:
        found += f"""
/* What one {verb} leaves for the next, in {macro}_STATE_BYTES: to be kept, and to be put back. */
#define {macro}_STATE_BYTES {state}
void {name}_save(const {name} *self, void *state);
void {name}_load({name} *self, const void *state);

/* The elements of one of {name}_about.variables, to be read or written between two {verb}s. */
void *{name}_variable({name} *self, size_t number);
"""
    if interface.form.malloc:
        found += f"""
/* A model with memory of its own, by malloc; null if there is none. {name}_delete frees it. */
{name} *{name}_new({given.removeprefix(", ") or "void"});
void {name}_delete({name} *self);
"""
    if interface.pooled:
        found += f"""
/* Ends the {interface.form.threads - 1} threads beside the caller's that were started. */
void {name}_stop(void);
"""
    return found


def _accumulation(interface: Interface) -> str:
    """A sentence on the calls of a step that make one update."""
    step = interface.step
    if step is None or step.period == 1:
        return ""
    macro = interface.form.name.upper()
    return (
        f"\n   Weights move in every {macro}_ACCUMULATE-th call, by the gradients of all"
        " calls since the last\n   update."
    )


def parameters(interface: Interface) -> str:
    """The parameters of the function that computes."""
    name, prefix = interface.form.name, interface.prefix
    sizes = f"const {name}_sizes *sizes, " if interface.sizes else ""
    return f"{name} *self, {sizes}const {prefix}_inputs *inputs, const {prefix}_outputs *outputs"


def _bounds(interface: Interface) -> str:
    return "".join(
        f"#define {interface.bound(member)} {size.bound} /* The largest {_plain(size.name)}. */\n"
        for member, (_, size) in interface.sizes.items()
    )


def _period(interface: Interface) -> str:
    step = interface.step
    if step is None or step.period == 1:
        return ""
    macro = interface.form.name.upper()
    return f"#define {macro}_ACCUMULATE {step.period} /* Steps per update of the weights. */\n"


def _codes(interface: Interface) -> str:
    """The last return codes."""
    macro = interface.form.name.upper()
    sized = bool(interface.sizes) or interface.step is not None
    code = f"{macro}_BAD_INDEX = 2" + ("," if sized else " ")
    lines = [f"{code} /* An index in the inputs is out of range: outputs mean nothing. */"]
    if sized:
        lines.append(f"{macro}_BAD_SIZE = 3   /* A size is out of range: nothing was done. */")
    return "\n    ".join(lines)


def _sizes(interface: Interface) -> str:
    """The struct of sizes; empty in a static program."""
    if not interface.sizes:
        return ""
    name = interface.form.name
    lines = "".join(
        f"    int64_t {member}; /* {_plain(size.name)}, {size.least} to {size.bound} */\n"
        for member, (_, size) in interface.sizes.items()
    )
    return f"""
/*
 * The sizes of a run. Arrays end where these say. Only those that are "in memory of" a larger
 * shape, for a size is not their outermost axis, have their elements where that shape has them.
 */
typedef struct {{
{lines}}} {name}_sizes;
"""


def _tensor_sizes(interface: Interface) -> str:
    if not interface.sizes:
        return ""
    macro = interface.form.name.upper()
    return (
        f"    int size[{macro}_RANK]; /* The number of the size at which each axis ends, or -1;\n"
        "        `shape` is that of the largest sizes. */\n"
    )


def _size(interface: Interface) -> str:
    if not interface.sizes:
        return ""
    name = interface.form.name
    return f"""
/* One of the sizes. */
typedef struct {{
    const char *name;
    int64_t max;
}} {name}_size;
"""


def _described_sizes(interface: Interface) -> str:
    """The members of the description for sizes; none in a static program."""
    if not interface.sizes:
        return ""
    return f"    size_t size_count;\n    const {interface.form.name}_size *sizes;\n"


def _struct(interface: Interface, tensors: dict[str, tuple[int, Slot]], constant: str) -> str:
    lines = [
        f"    {constant}{c_type(slot)} *{member}; /* {_about(interface, slot)} */"
        for member, (_, slot) in tensors.items()
    ]
    return "\n".join(lines) or f"    {constant}void *nothing; /* There are none. */"


def c_type(slot: Slot) -> str:
    """The C type of the elements of a tensor."""
    assert slot.dtype is not None
    return TYPES.get(slot.dtype.name, "uint8_t")


def _about(interface: Interface, slot: Slot) -> str:
    assert slot.dtype is not None
    what = f"{_plain(slot.label)}: {slot.dtype.name}"
    axes = interface.axes(slot)
    if not axes:
        return f"{what} {text(slot.shape)}, {size_of(slot)} bytes"
    shape = " x ".join(
        _multiple(*axes[axis]) if axis in axes else str(size)
        for axis, size in enumerate(slot.shape)
    )
    if prod(slot.shape[: max(axes)]) > 1:
        return f"{what} {shape} in memory of {text(slot.shape)}, {size_of(slot)} bytes"
    return f"{what} {shape}, {size_of(slot)} bytes at most"


def _multiple(member: str, place: SizedAxis) -> str:
    return member if place.factor == 1 else f"{place.factor}*{member}"


def _plain(label: str) -> str:
    """A label as ASCII text that neither ends nor begins a C comment."""
    safe = label.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *")
    return "".join(each if each.isprintable() else "?" for each in safe).replace("\\", "?")


def shape_text(shape: Sequence[int]) -> str:
    """A shape as elements of a C array, which must not be empty."""
    return ", ".join(map(str, shape)) or "0"
