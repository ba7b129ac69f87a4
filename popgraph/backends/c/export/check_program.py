"""The check of exported C: a program that runs a model on a test vector and compares."""

from __future__ import annotations

import re
from collections.abc import Iterator

from popgraph.backends.c.export.interface import Interface, Weights, c_type
from popgraph.backends.c.export.source import padded_words, words_text
from popgraph.backends.c.memory.table import Slot
from popgraph.backends.tools import Vector
from popgraph.support.shapes import prod

TOLERANCES = {"f16": 1e-2, "bf16": 6e-2, "f64": 1e-8, "c128": 1e-8}
"""How far results may be apart, by element type: the largest in a tensor counts."""
OF_F32 = 1e-3


STEPS = 3
"""Steps of a training whose last results are compared."""


def data(interface: Interface, vector: Vector) -> str:
    """check_data.h."""
    parts = ["/* Inputs, and the outputs that the reference backend of PopGraph computed. */\n"]
    for what, tensors, arrays in (
        ("given", interface.inputs, vector.inputs),
        ("wanted", interface.outputs, vector.outputs),
    ):
        for member, (_, slot) in tensors.items():
            words = words_text(padded_words(arrays[slot.label]))
            parts.append(f"static const uint64_t {what}_{member}[] = {{\n{words}\n}};\n")
    return "\n".join(parts)


MAIN = """\
/*
 * Runs NAME on a test vector, and compares. `check 100` runs it a hundred times more, and says how
 * long that took.
 */
#include "NAME.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check_data.h"

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

static int compare(size_t output, const void *found, const void *wanted, double tolerance) {
    const NAME_tensor *tensor = &NAME_about.outputs[output];
    const double apart = distance(tensor, found, wanted);
    const int good = apart >= 0.0 && apart <= tolerance;
    if (apart < 0.0) printf("%s: not equal\\n", tensor->name);
    else printf("%s: %g of the largest apart%s\\n", tensor->name, apart, good ? "" : ": too far");
    return good;
}

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

STATICS
int main(int count, char **arguments) {
    static NAME self;
    const int more = count > 1 ? atoi(arguments[1]) : 0;
    int good = 1;
LOAD    if (NAME_init(&self, memoryWEIGHTS) != MACRO_OK) {
        puts("memory is not aligned");
        return 1;
    }
    const NAME_inputs inputs = {GIVEN};
    const NAME_outputs outputs = {FOUND};
    for (int at = 0; at < STEPS; at++) {
        if (NAME_VERB(&self, &inputs, &outputs) != MACRO_OK) {
            puts("an index is out of range");
            return 1;
        }
    }
COMPARE    puts(good ? "good" : "BAD");
    if (more > 0) {
        const double start = seconds();
        for (int at = 0; at < more; at++) NAME_VERB(&self, &inputs, &outputs);
        printf("%g ms a VERB\\n", 1e3 * (seconds() - start) / more);
    }
    return good ? 0 : 1;
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


def main(interface: Interface) -> str:
    """main.c."""
    form = interface.form
    is_file = form.weights is Weights.FILE
    statics = ["static _Alignas(MACRO_ALIGNMENT) char memory[MACRO_MEMORY_BYTES];"]
    if is_file:
        size = "[MACRO_WEIGHTS_BYTES + 1]"
        statics.append(f"static _Alignas(MACRO_ALIGNMENT) char weights{size};")
    buffers = [
        f"static _Alignas({form.name.upper()}_ALIGNMENT) {c_type(slot)} "
        f"found_{member}[{_count(slot)}];"
        for member, (_, slot) in interface.outputs.items()
    ]
    given = [f"(const {c_type(slot)} *)given_{one}" for one, (_, slot) in interface.inputs.items()]
    frame = MAIN
    for word, text in {
        "STATICS": "\n".join(statics) + "\nBUFFERS",
        "LOAD": FILE if is_file else "",
        "memoryWEIGHTS": "memory, weights" if is_file else "memory",
        "STEPS": str(STEPS if form.train else 1),
        "VERB": form.verb,
        "NAME": form.name,
        "MACRO": form.name.upper(),
    }.items():
        frame = frame.replace(word, text)
    # What users have named comes last: no word of the frame is looked for in it.
    tensors = {
        "BUFFERS": "\n".join(buffers) + "\n",
        "GIVEN": ", ".join(given) or "NULL",
        "FOUND": ", ".join(f"found_{one}" for one in interface.outputs) or "NULL",
        "COMPARE": "".join(_compared(interface)),
    }
    return re.sub("|".join(tensors), lambda match: tensors[match[0]], frame)


def _count(slot: Slot) -> int:
    """Numbers in an output: at least one, two for a complex one."""
    assert slot.dtype is not None
    return max(1, prod(slot.shape)) * (2 if slot.dtype.name.startswith("c") else 1)


def _compared(interface: Interface) -> Iterator[str]:
    for number, (member, (_, slot)) in enumerate(interface.outputs.items()):
        assert slot.dtype is not None
        tolerance = TOLERANCES.get(slot.dtype.name, OF_F32)
        yield f"    good &= compare({number}, found_{member}, wanted_{member}, {tolerance:g});\n"
