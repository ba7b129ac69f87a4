"""The sources of exported C: a translation unit, its runtime header, and the weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.export import deltas
from popgraph.backends.c.export.image import called, size_of
from popgraph.backends.c.export.interface import (
    Form,
    Interface,
    Weights,
    c_type,
    parameters,
    shape_text,
)
from popgraph.backends.c.export.names import quoted
from popgraph.backends.c.memory.table import Slot
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.module import print_kernels
from popgraph.backends.c.print.program import print_step
from popgraph.backends.c.print.unit import (
    HEADERS,
    POOL,
    PORTABLE,
    SERIAL,
    Kernel,
    distinct,
    headers,
    vector_typedefs,
)
from popgraph.dialects.tile.program.ops import find_program
from popgraph.support.array_bytes import memory_of
from popgraph.support.index_checks import IndexCheck
from popgraph.support.shapes import prod

_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)


def runtime(pooled: bool) -> str:
    """The runtime of kernels, merged into one header."""
    frame = POOL if pooled else SERIAL
    texts = headers(frame)
    assert set(texts) == {*HEADERS, frame}
    return _whole(frame, texts)


def _whole(name: str, texts: dict[str, str]) -> str:
    return _INCLUDE.sub(lambda match: _whole(match[1], texts), texts[name])


_UNUSED = """\
/* Some kernels load what a later step then does not need; compilers leave that out. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-variable"
#endif
"""


@dataclass(frozen=True)
class Steps:
    """The code of a function: the kernels it calls, and the static functions of its program."""

    kernels: list[Kernel]
    text: str


def steps_of(module: ModuleOp, program: str, form: Form) -> Steps:
    """The code of a program."""
    kernels = print_kernels(module, shared=form.optimize != "speed", index=form.index)
    text = print_step(Layout(find_program(module, program)), kernels)
    return Steps(called(kernels, text), text)


def source(interface: Interface, steps: Sequence[Steps], programs: Sequence[str]) -> str:
    """NAME.c, with the code and the program of each function of the model."""
    used = distinct([kernel for one in steps for kernel in one.kernels])
    name = interface.form.name
    parts = [
        "#define _GNU_SOURCE\n" if interface.pooled else "",
        f"#define {PORTABLE}\n" if interface.form.portable else "",
        f'#include "{name}.h"\n#include "{name}_runtime.h"\n\n#include <string.h>\n',
        "#include <stdlib.h>\n" if interface.form.malloc else "",
        _UNUSED,
        "" if interface.form.index == "i64" else f"typedef ptrdiff_t {interface.form.index};\n",
        vector_typedefs(used),
        *map(_kernel, used),
        *(one.text for one in steps),
        *_functions(interface, programs),
    ]
    return "\n".join(filter(None, parts))


def _kernel(kernel: Kernel) -> str:
    """A kernel as a static function; unused parameters, as of single chunks, are cast to void."""
    head, body = kernel.text.split("\n", 1)
    read = set(re.findall(r"\w+", body))
    parameters = re.findall(r"(\w+)[,)]", head)
    unused = "".join(f"    (void){one};\n" for one in parameters if one not in read)
    origin = f"/* {_plain(kernel.location)} */\n" if kernel.location else ""
    return f"{origin}static __attribute__((noinline)) {head}\n{unused}{body}"


def _plain(location: str) -> str:
    return re.sub(r"[^ -~]|\\", "?", location).replace("*/", "*?").replace("/*", "?*")


def _functions(interface: Interface, programs: Sequence[str]) -> Iterator[str]:
    form, image = interface.form, interface.image
    name, macro = form.name, form.name.upper()
    if form.weights is not Weights.FILE and image.rom_bytes:
        element = "uint64_t" if form.weights is Weights.ARRAY else "unsigned char"
        yield f"extern const {element} {name}_weights[];\n"
    yield from map(_described, interface.all)
    yield _init(interface)
    yield from map(_run, interface.all, programs)  # An update is the last program, if any.
    if interface.state_bytes:
        at = image.written[0].number
        yield f"""\
void {name}_save(const {name} *self, void *state) {{
    memcpy(state, self->slots[{at}], {macro}_STATE_BYTES);
}}

void {name}_load({name} *self, const void *state) {{
    memcpy(self->slots[{at}], state, {macro}_STATE_BYTES);
}}

{_variable(interface)}"""
    yield from _update(interface)
    yield from deltas.functions(interface)
    if form.malloc:
        yield _new(interface)
    if interface.pooled:
        yield f"void {name}_stop(void) {{ popgraph_stop_workers(); }}\n"


def _variable(interface: Interface) -> str:
    name = interface.form.name
    cases = "".join(
        f"        case {at}: return self->slots[{number}];\n"
        for at, (number, _) in enumerate(interface.variables.values())
    )
    return f"""\
void *{name}_variable({name} *self, size_t number) {{
    switch (number) {{
{cases}        default: return NULL;
    }}
}}
"""


def _described(interface: Interface) -> str:
    form, image = interface.form, interface.image
    name, prefix = form.name, interface.prefix
    lists = []
    kinds = {"inputs": interface.inputs, "outputs": interface.outputs}
    if interface.variables:
        kinds["variables"] = interface.variables
    for what, tensors in kinds.items():
        rows = "".join(f"    {_tensor(interface, slot)},\n" for _, slot in tensors.values())
        empty = f'    {{"", "", 0, 0, 0, {{0}}{", {-1}" if interface.sizes else ""}}},\n'
        lists.append(f"static const {name}_tensor {prefix}_all_{what}[] = {{\n{rows or empty}}};\n")
    sizes = f"{name.upper()}_MEMORY_BYTES, {image.rom_bytes}, {name.upper()}_ALIGNMENT"
    counts = f"{len(interface.inputs)}, {len(interface.outputs)}"
    count = len(interface.variables)
    variables = f"    {count}, {name}_all_variables,\n" if count else ""
    if interface.function and form.train:  # Variables are those of the step.
        variables = "    0, NULL,\n"
    sized = ""
    if interface.sizes:
        rows = "".join(
            f"    {{{quoted(size.name)}, {interface.bound(member)}}},\n"
            for member, (_, size) in interface.sizes.items()
        )
        lists.append(f"static const {name}_size {name}_all_sizes[] = {{\n{rows}}};\n")
        sized = f"    {len(interface.sizes)}, {name}_all_sizes,\n"
    about = f"""\
const {name}_description {prefix}_about = {{
    {quoted(prefix)}, {quoted(form.target.name)}, {sizes},
    {counts}, {prefix}_all_inputs, {prefix}_all_outputs,
{variables}{sized}}};
"""
    return "\n".join([*lists, about])


def _tensor(interface: Interface, slot: Slot) -> str:
    assert slot.dtype is not None
    shape = shape_text(slot.shape)
    sizes = f"{prod(slot.shape)}, {size_of(slot)}, {len(slot.shape)}"
    ends = ""
    if interface.sizes:
        numbers, axes = [*interface.sizes], interface.axes(slot)
        found = [numbers.index(axes[at][0]) if at in axes else -1 for at in range(len(slot.shape))]
        ends = f", {{{', '.join(map(str, found or [-1]))}}}"
    return f"{{{quoted(slot.label)}, {quoted(slot.dtype.name)}, {sizes}, {{{shape}}}{ends}}}"


def _init(interface: Interface) -> str:
    form, image = interface.form, interface.image
    name, macro = form.name, form.name.upper()
    rom = form.weights is Weights.FILE or image.rom_bytes > 0
    start = "weights" if form.weights is Weights.FILE else f"{name}_weights"
    tested = "(uintptr_t)memory | (uintptr_t)rom" if rom else "(uintptr_t)memory"
    lines = ["char *ram = (char *)memory;"]
    if rom:
        lines.append(f"char *rom = (char *)(uintptr_t){start};")
    lines += [
        f"if (({tested}) % {macro}_ALIGNMENT) return {macro}_UNALIGNED;",
        "memset(self, 0, sizeof *self);",
        *(
            f"self->slots[{one.first}] = (void *)(intptr_t){form.threads};"
            for one in interface.programs
        ),
    ]
    for one in interface.programs:
        lines += [
            f"self->slots[{one.first + place.number}] = {memory} + {place.offset};"
            for memory, places in (("rom", one.image.constants), ("ram", one.image.written))
            for place in places
        ]
    if interface.state_bytes:
        lines.append(f"memset(ram, 0, {macro}_STATE_BYTES);")
    lines += [
        f"memcpy(self->slots[{one.first + place.number}], rom + {place.offset}, {place.bytes});"
        for one in interface.programs
        for place in one.image.firsts
    ]
    if interface.step is not None:
        lines.append(f"self->slots[{interface.slots - 1}] = {'rom' if rom else 'NULL'};")
    if not any(one.image.written for one in interface.programs):
        lines.append("(void)ram;")
    body = "".join(f"    {line}\n" for line in [*lines, f"return {macro}_OK;"])
    return f"int {name}_init({name} *self, void *memory{interface.given}) {{\n{body}}}\n"


def _run(interface: Interface, program: str) -> str:
    name, macro, first = interface.form.name, interface.form.name.upper(), interface.first
    lines = [
        f"if (sizes->{member} < {size.least} || sizes->{member} > {interface.bound(member)}) "
        f"return {macro}_BAD_SIZE;"
        for member, (_, size) in interface.sizes.items()
    ]
    lines += [
        f"self->slots[{first + number}] = (void *)(uintptr_t)&sizes->{member};"
        for member, (number, _) in interface.sizes.items()
    ]
    lines += [
        f"self->slots[{first + number}] = (void *)(uintptr_t)inputs->{member};"
        for member, (number, _) in interface.inputs.items()
    ] or ["(void)inputs;"]
    lines += [
        f"self->slots[{first + number}] = outputs->{member};"
        for member, (number, _) in interface.outputs.items()
    ] or ["(void)outputs;"]
    lines.append(f"{program}_run(self->slots{f' + {first}' if first else ''});")
    lines += _updated(interface)
    table = interface.image.table
    for check in table.checks:
        number = table.named("output")[check.output]
        lines += _checked(check, first + number, table.slots[number], macro)
    body = "".join(f"    {line}\n" for line in [*lines, f"return {macro}_OK;"])
    return f"int {name}_{interface.verb}({parameters(interface)}) {{\n{body}}}\n"


def _update(interface: Interface) -> Iterator[str]:
    """NAME_update, which updates before the last call: by the mean of the gradients so far."""
    step, update, accumulators = interface.step, interface.update, interface.accumulators
    if step is None or update is None or not accumulators:
        return
    name, numbers = interface.form.name, interface.image.table.named("variable")
    lines = [
        f"float *count = (float *)self->slots[{numbers[step.counter]}];",
        "if (*count == 0.0f) return;",
    ]
    for number, slot in accumulators if step.is_mean else ():
        kind = c_type(slot)
        lines.append(
            f"for (size_t at = 0; at < {prod(slot.shape)}; at++) "
            f"(({kind} *)self->slots[{number}])[at] *= ({kind}){step.period} / ({kind})*count;"
        )
    # The update empties accumulators and the count if a batch is complete.
    lines.append(f"*count = {step.period}.0f;")
    lines.append(f"{update.function}_main_run(self->slots + {update.first});")
    body = "".join(f"    {line}\n" for line in lines)
    yield f"void {name}_update({name} *self) {{\n{body}}}\n"


def _updated(interface: Interface) -> Iterator[str]:
    """The update in the last of several calls, also if it rejects an index: it counts, too."""
    step, update = interface.step, interface.update
    if step is None or update is None:
        return
    counter = interface.image.table.named("variable")[step.counter]
    yield (
        f"if (*(const float *)self->slots[{counter}] >= {interface.form.name.upper()}_ACCUMULATE) "
        f"{update.function}_main_run(self->slots + {update.first});"
    )


def _checked(check: IndexCheck, number: int, slot: Slot, macro: str) -> Iterator[str]:
    """The checks that end a run with BAD_INDEX if an index was out of range."""
    assert slot.dtype is not None
    memory = f"((const {slot.dtype.name}_memory *)self->slots[{number}])"
    for at, (low, last) in enumerate(zip(check.low, check.last, strict=True)):
        bound = f"UINT64_C({last - low})"
        yield f"if ({memory}[{at}] > {bound}) return {macro}_BAD_INDEX; /* {_plain(check.what)} */"


def _new(interface: Interface) -> str:
    """NAME_new and NAME_delete, which allocate the model and its memory as one block."""
    name, macro = interface.form.name, interface.form.name.upper()
    passed = ", weights" if interface.given else ""
    return f"""\
{name} *{name}_new({interface.given.removeprefix(", ") or "void"}) {{
    {name} *self = ({name} *)malloc(sizeof({name}) + {macro}_MEMORY_BYTES + {macro}_ALIGNMENT);
    if (self == NULL) return NULL;
    char *memory = (char *)(self + 1);
    memory += (0 - (uintptr_t)memory) % {macro}_ALIGNMENT;
    if ({name}_init(self, memory{passed}) == {macro}_OK) return self;
    free(self);
    return NULL;
}}

void {name}_delete({name} *self) {{ free(self); }}
"""


ASSEMBLY = """\
/* The constants of NAME, from NAME_weights.bin as they are. */
#if defined(__APPLE__)
    .section __TEXT,__const
    .globl _NAME_weights
    .p2align 6
_NAME_weights:
#elif defined(_WIN32)
    .section .rdata,"dr"
    .globl NAME_weights
    .p2align 6
NAME_weights:
#elif defined(__wasm__)
    .section .rodata.NAME_weights,"",@
    .globl NAME_weights
    .type NAME_weights,@object
    .size NAME_weights, BYTES
    .p2align 6
NAME_weights:
#else
    .section .rodata.NAME_weights,"a",%progbits
    .globl NAME_weights
    .hidden NAME_weights
    .type NAME_weights, %object
    .size NAME_weights, BYTES
    .p2align 6
NAME_weights:
#endif
    .incbin "NAME_weights.bin"
#if defined(__ELF__)
    .section .note.GNU-stack,"",%progbits
#endif
"""


def assembly(interface: Interface) -> str:
    """NAME_weights.S."""
    sized = ASSEMBLY.replace("BYTES", str(interface.image.rom_bytes))
    return sized.replace("NAME", interface.form.name)


def array(interface: Interface) -> str:
    """NAME_weights.c, with elements of eight bytes, which compilers parse faster than of one."""
    name = interface.form.name
    words = np.frombuffer(b"".join(interface.image.rom), np.uint64)
    return f"""\
/* The constants of {name}. */
#include <stdint.h>

extern const uint64_t {name}_weights[];
_Alignas(64) const uint64_t {name}_weights[{max(len(words), 1)}] = {{
{words_text(words)}
}};
"""


def words_text(words: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.uint64]]) -> str:
    """64-bit integers as C text, five per line."""
    texts = [f"0x{int(word):x}" for word in words] or ["0"]
    lines = (texts[at : at + 5] for at in range(0, len(texts), 5))
    return "\n".join(f"    {', '.join(line)}," for line in lines)


def padded_words(content: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Sequence[int]:
    """The bytes of an array as little-endian 64-bit integers, zero-padded."""
    raw = bytes(memory_of(np.ascontiguousarray(content)))
    words: list[int] = np.frombuffer(raw + bytes(-len(raw) % 8), np.uint64).tolist()
    return words
