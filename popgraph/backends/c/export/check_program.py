"""The check of exported C: a program that runs test vectors and compares the outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from popgraph.backends.c.export import bits
from popgraph.backends.c.export.interface import Interface, Weights, c_type
from popgraph.backends.c.export.source import padded_words, words_text
from popgraph.backends.c.memory.table import Slot
from popgraph.backends.tools import Vector
from popgraph.support.shapes import prod

TOLERANCES = {"f16": 1e-2, "bf16": 6e-2, "f64": 1e-8, "c128": 1e-8}
"""Tolerances by element type, relative to the largest element of a tensor."""
OF_F32 = 1e-3


STEPS = 3
"""Training steps before results are compared."""


def runs(interface: Interface) -> int:
    """The runs of a function before its outputs equal the test vector."""
    step = interface.step
    return 1 if step is None else steps(step.period)


def tolerance(slot: Slot) -> float:
    """The largest difference from a test vector, as a share of its largest element."""
    assert slot.dtype is not None
    return TOLERANCES.get(slot.dtype.name, OF_F32)


def steps(period: int) -> int:
    """
    The runs of a training step before results are compared.

    If several make an update, outputs see two updates, and the state has a sum of one step.
    """
    return STEPS if period == 1 else 2 * period + 1


def data(interface: Interface, vectors: Sequence[Vector], others: Sequence[Vector] = ()) -> str:
    """check_data.h: the inputs of the first vector, and the outputs of all; a vector per other."""
    parts = ["/* Inputs, and the outputs that the reference backend of PopGraph computed. */\n"]
    lists = [("given_{}", interface.inputs, vectors[0].inputs)]
    for number, vector in enumerate(vectors):
        name = "wanted_{}" + (f"_{number}" if interface.sizes else "")
        lists.append((name, interface.outputs, vector.outputs))
    for one, vector in zip(interface.others, others, strict=True):
        lists.append((one.function + "_given_{}", one.inputs, vector.inputs))
        lists.append((one.function + "_wanted_{}", one.outputs, vector.outputs))
    for name, tensors, arrays in lists:
        for member, (_, slot) in tensors.items():
            words = words_text(padded_words(arrays[slot.label]))
            parts.append(f"static const uint64_t {name.format(member)}[] = {{\n{words}\n}};\n")
    if interface.sizes:
        parts += _checks(interface, vectors)
    parts += bits.data(interface)
    return "\n".join(parts)


def _checks(interface: Interface, vectors: Sequence[Vector]) -> Iterator[str]:
    """The sizes to check, and the outputs for each."""
    name = interface.form.name
    rows = "".join(f"    {{{', '.join(map(str, vector.sizes))}}},\n" for vector in vectors)
    yield f"static const {name}_sizes checked[] = {{\n{rows}}};\n"
    for member in interface.outputs:
        wanted = ", ".join(f"wanted_{member}_{number}" for number in range(len(vectors)))
        yield f"static const uint64_t *const wanted_{member}[] = {{{wanted}}};\n"


@dataclass(frozen=True)
class Place:
    """The parts of a check that depend on the system that runs it."""

    includes: str
    clock: str
    """The body of a C function that returns seconds."""
    entry: str
    """The function that the system calls first. It calls `check(n)`: with n more runs, timed."""


HOSTED = Place(
    "#include <time.h>\n",
    """\
#if defined(TIME_UTC)
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
""",
    """\
int main(int count, char **arguments) { return check(count > 1 ? atoi(arguments[1]) : 0); }
""",
)
"""A system with a standard library and a command line."""

DISTANCE = """\
/* An element as a number, for comparison. */
static double element(const char *type, const void *data, size_t at) {
    if (!strcmp(type, "f32") || !strcmp(type, "c64")) return (double)((const float *)data)[at];
    if (!strcmp(type, "f64") || !strcmp(type, "c128")) return ((const double *)data)[at];
    if (!strcmp(type, "f16")) {
        const unsigned bits = ((const uint16_t *)data)[at], size = bits & 0x7fff;
        const double number = size >= 0x7c00 ? (size > 0x7c00 ? (double)NAN : (double)INFINITY)
            : size < 0x400 ? ldexp((double)size, -24)
            : ldexp((double)((size & 0x3ff) | 0x400), (int)(size >> 10) - 25);
        return bits >> 15 ? -number : number;
    }
    if (!strcmp(type, "bf16")) {
        const uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
        float number;
        memcpy(&number, &bits, sizeof number);
        return (double)number;
    }
    return 0.0;
}

/* How far the results are apart, as a share of the largest that is wanted; below 0: not equal. */
static double distance(const NAME_tensor *tensor, const void *found, const void *wanted) {
    const char *type = tensor->type;
    if (strcmp(type, "f32") && strcmp(type, "f64") && strcmp(type, "f16") && strcmp(type, "bf16") &&
        strcmp(type, "c64") && strcmp(type, "c128"))
        return memcmp(found, wanted, tensor->bytes) ? -1.0 : 0.0;
    const size_t count = tensor->elements * (type[0] == 'c' ? 2 : 1);
    double largest = 0.0, apart = 0.0;
    for (size_t at = 0; at < count; at++) {
        const double a = element(type, found, at), b = element(type, wanted, at);
        if ((isnan(a) != 0) != (isnan(b) != 0)) return -1.0;
        if (isnan(a) || a == b) {
            if (isfinite(b) && fabs(b) > largest) largest = fabs(b);
            continue;
        }
        if (!isfinite(a) || !isfinite(b)) return -1.0;
        if (fabs(b) > largest) largest = fabs(b);
        if (fabs(a - b) > apart) apart = fabs(a - b);
    }
    return apart == 0.0 ? 0.0 : apart / (largest > 1e-6 ? largest : 1e-6);
}
"""
"""C and C++ that compare an output with the one of a test vector."""

RUN_AGAIN = """ `check 100` runs it a hundred times more, and says how
 * long that took."""

MAIN = """\
/*
 * Runs NAME on a test vector, and compares.ABOUT
 */
#include "NAME.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
INCLUDES
#include "check_data.h"

DISTANCE
static uint64_t bits; /* A digest of all results. */

FRONTstatic int compare(HEAD) {
TENSOR    const double apart = distance(tensor, found, wanted);
    const int good = apart >= 0.0 && apart <= tolerance;
    if (apart < 0.0) printf("%s: not equal\\n", tensor->name);
    else printf("%s: %g of the largest apart%s\\n", tensor->name, apart, good ? "" : ": too far");
    bits = 3 * bits + digest(found, tensor->bytes);
    return good;
}

static double seconds(void) {
CLOCK}

STATICS
/* Returns 0 if all results are good; runs `more` times more, and says how long that took. */
static int check(int more) {
    static NAME self;
    int good = 1;
LOADRUNS    printf("bits %08lx", (unsigned long)(bits >> 32));
    printf("%08lx\\n", (unsigned long)(bits & 0xffffffff));
    puts(good ? "good" : "BAD");
    if (more > 0) {
        const double start = seconds();
        for (int at = 0; at < more; at++) NAME_VERB(&self, SIZES&inputs, &outputs);
        printf("%g ms a VERB\\n", 1e3 * (seconds() - start) / more);
    }
    return good ? 0 : 1;
}

ENTRY"""
RUNS = """\
    if (NAME_init(&self, memoryWEIGHTS) != MACRO_OK) {
        puts("memory is not aligned");
        return 1;
    }
    const NAME_inputs inputs = {GIVEN};
    const NAME_outputs outputs = {FOUND};
OTHERS    for (int at = 0; at < STEPS; at++) {
        if (NAME_VERB(&self, &inputs, &outputs) != MACRO_OK) {
            puts("an index is out of range");
            return 1;
        }
    }
COMPARE"""
HEAD = "const NAME_tensor *tensor, const void *found, const void *wanted, double tolerance"

RUNS_OF_SIZES = """\
    const NAME_inputs inputs = {GIVEN};
    const NAME_outputs outputs = {FOUND};
    for (size_t check = 0; check < sizeof checked / sizeof *checked; check++) {
        const NAME_sizes *sizes = &checked[check];
PRINT        if (NAME_init(&self, memoryWEIGHTS) != MACRO_OK) {
            puts("memory is not aligned");
            return 1;
        }
        for (int at = 0; at < STEPS; at++) {
            if (NAME_VERB(&self, sizes, &inputs, &outputs) != MACRO_OK) {
                puts("a size or an index is out of range");
                return 1;
            }
        }
COMPARE    }
"""
HEAD_OF_SIZES = """
    const NAME_tensor *whole, void *found, const void *wanted, double tolerance,
    const NAME_sizes *sizes"""
FRONT_OF_TENSOR = "    const NAME_tensor part = front(whole, found, sizes), *tensor = &part;\n"
FRONT = """\
/* An output that ends at sizes: moves what is in it to the front. */
static NAME_tensor front(const NAME_tensor *whole, void *found, const NAME_sizes *sizes) {
    const int64_t numbers[] = {NUMBERS};
    const size_t bytes = whole->elements ? whole->bytes / whole->elements : 0;
    NAME_tensor part = *whole;
    for (size_t axis = 0; axis < whole->rank; axis++) {
        const int size = whole->size[axis];
        if (size < 0) continue;
        part.shape[axis] /= (size_t)NAME_about.sizes[size].max;
        part.shape[axis] *= (size_t)numbers[size];
    }
    part.elements = 0;
    for (size_t at = 0; at < whole->elements; at++) {
        size_t rest = at;
        int inside = 1;
        for (size_t axis = whole->rank; axis-- > 0; rest /= whole->shape[axis])
            inside &= rest % whole->shape[axis] < part.shape[axis];
        if (!inside) continue;
        memmove((char *)found + bytes * part.elements++, (char *)found + bytes * at, bytes);
    }
    part.bytes = bytes * part.elements;
    return part;
}

"""
FILE = """\
    FILE *file = fopen("NAME_weights.bin", "rb");
    if (file == NULL || fread(weights, 1, MACRO_WEIGHTS_BYTES, file) != MACRO_WEIGHTS_BYTES) {
        puts("NAME_weights.bin cannot be read");
        return 1;
    }
    fclose(file);
"""


def comparison(interface: Interface) -> str:
    """The C and C++ functions that compare an output with the one of a test vector."""
    return DISTANCE.replace("NAME", interface.form.name)


def main(interface: Interface, place: Place = HOSTED) -> str:
    """main.c, for a system."""
    form = interface.form
    is_file = form.weights is Weights.FILE
    statics = ["static _Alignas(MACRO_ALIGNMENT) char memory[MACRO_MEMORY_BYTES];"]
    if is_file:
        size = "[MACRO_WEIGHTS_BYTES + 1]"
        statics.append(f"static _Alignas(MACRO_ALIGNMENT) char weights{size};")
    buffers = [text for one in interface.all for text in _buffers(one)]
    frame, sizes = MAIN, [*interface.sizes]
    printed = ", ".join(f"{one} = %lld" for one in sizes)
    numbers = "".join(f", (long long)sizes->{one}" for one in sizes)
    for word, text in {
        "INCLUDES": place.includes,
        "ABOUT": RUN_AGAIN if place is HOSTED else "",
        "DISTANCE": f"{DISTANCE}\n{bits.DIGEST}",
        "CLOCK": place.clock,
        "ENTRY": place.entry,
        "FRONT": FRONT if sizes else "",
        "HEAD": HEAD_OF_SIZES if sizes else HEAD,
        "TENSOR": FRONT_OF_TENSOR if sizes else "",
        "RUNS": RUNS_OF_SIZES if sizes else RUNS,
        "SIZES": "checked, " if sizes else "",
        "STATICS": "\n".join(statics) + "\nBUFFERS",
        "LOAD": FILE if is_file else "",
        "memoryWEIGHTS": "memory, weights" if is_file else "memory",
        "STEPS": str(runs(interface)),
        "VERB": form.verb,
        "NAME": form.name,
        "MACRO": form.name.upper(),
    }.items():
        frame = frame.replace(word, text)
    # Users' names are inserted last, so that no placeholder is replaced inside them.
    tensors = {
        "BUFFERS": "\n".join([*buffers, *map(_check, interface.others), bits.function(interface)])
        + "\n",
        "GIVEN": _given(interface),
        "FOUND": _found(interface),
        # Before the steps, which change weights.
        "OTHERS": "".join(map(_checked, interface.others)),
        "COMPARE": "".join([*_compared(interface), bits.call(interface)]),
        "PRINT": f'        printf("{printed}:\\n"{numbers});\n',
        "NUMBERS": ", ".join(f"sizes->{one}" for one in sizes),
    }
    return re.sub("|".join(tensors), lambda match: tensors[match[0]], frame)


def _own(interface: Interface) -> str:
    """The prefix of a function's arrays."""
    return f"{interface.function}_" if interface.function else ""


def _buffers(interface: Interface) -> Iterator[str]:
    own, macro = _own(interface), interface.form.name.upper()
    for member, (_, slot) in interface.outputs.items():
        array = f"{own}found_{member}[{_count(slot)}]"
        yield f"static _Alignas({macro}_ALIGNMENT) {c_type(slot)} {array};"


def _given(interface: Interface) -> str:
    own, inputs = _own(interface), interface.inputs.items()
    cast = [f"(const {c_type(slot)} *){own}given_{member}" for member, (_, slot) in inputs]
    return ", ".join(cast) or "NULL"


def _found(interface: Interface) -> str:
    own = _own(interface)
    return ", ".join(f"{own}found_{member}" for member in interface.outputs) or "NULL"


def _check(interface: Interface) -> str:
    """The C function that checks a function beside the main one."""
    name, verb, prefix = interface.form.name, interface.function, interface.prefix
    return f"""
static int check_{verb}({name} *self, int more) {{
    const {prefix}_inputs inputs = {{{_given(interface)}}};
    const {prefix}_outputs outputs = {{{_found(interface)}}};
    int good = 1;
    puts("{verb}:");
    if ({prefix}(self, &inputs, &outputs) != {name.upper()}_OK) {{
        puts("{verb}: an index is out of range");
        return 0;
    }}
{"".join(_compared(interface))}    if (more > 0) {{
        const double start = seconds();
        for (int at = 0; at < more; at++) {prefix}(self, &inputs, &outputs);
        printf("%g ms a {verb}\\n", 1e3 * (seconds() - start) / more);
    }}
    return good;
}}"""


def _checked(interface: Interface) -> str:
    return f"    good &= check_{interface.function}(&self, more);\n"


def _count(slot: Slot) -> int:
    """The number of C elements of an output: at least 1, two per complex element."""
    assert slot.dtype is not None
    return max(1, prod(slot.shape)) * (2 if slot.dtype.name.startswith("c") else 1)


def _compared(interface: Interface) -> Iterator[str]:
    for number, (member, (_, slot)) in enumerate(interface.outputs.items()):
        end, more, indent = "", "", "    "
        if interface.sizes:
            end, more, indent = "[check]", ", sizes", "        "
        own = _own(interface)
        tensor = f"&{interface.prefix}_about.outputs[{number}]"
        passed = f"{own}found_{member}, {own}wanted_{member}{end}, {tolerance(slot):g}{more}"
        yield f"{indent}good &= compare({tensor}, {passed});\n"
