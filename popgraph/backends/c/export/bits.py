"""Digests of results in the check of exported C, and their comparison with a trainer's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from popgraph.backends.c.export.interface import Interface
from popgraph.backends.c.export.targets import HERE
from popgraph.backends.c.memory.table import Slot
from popgraph.support.array_bytes import memory_of
from popgraph.support.arrays import Array

SAME_FLAGS = "SAME_FLAGS"
"""The macro that the Makefile defines unless the user overrides its flags."""
_FACTOR = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, odd: the powers differ in all bits."""


def digest(array: Array) -> int:
    """The digest of an array: the sum of (word + 1) * factor^i over its words of 64 bits."""
    raw = bytes(memory_of(np.ascontiguousarray(array)))
    words = np.frombuffer(raw + bytes(-len(raw) % 8), np.uint64)
    factors = np.full(len(words), _FACTOR, np.uint64)
    factors[:1] = 1
    return int(((words + np.uint64(1)) * np.multiply.accumulate(factors)).sum())


def data(interface: Interface) -> Iterator[str]:
    """The digests of a trainer's outputs and variables, for check_data.h."""
    step = interface.step
    if step is None or step.trained is None:
        return
    build, trained = interface.form.target.build, step.trained
    compiler, condition = f'"{build.version}"', f" && {build.condition}"
    if interface.form.portable:
        compiler, condition = "__VERSION__", ""
    rows = [f"UINT64_C({digest(trained.outputs[slot.label]):#x})" for slot in _outputs(interface)]
    held = [
        f"UINT64_C({digest(trained.variables[slot.label]):#x})"
        for _, slot in interface.variables.values()
    ]
    yield f"""\
/* Digests of what PopGraph's trainer on this machine computed, and how it was compiled. */
static const uint64_t trained_outputs[] = {{{", ".join(rows) or "0"}}};
static const uint64_t trained_state[] = {{{", ".join(held)}}};
#define TRAINER_COMPILER {compiler}
#if defined({SAME_FLAGS}){condition}
#define SAME_BUILD 1
#else
#define SAME_BUILD 0
#endif
"""


def _outputs(interface: Interface) -> Iterator[Slot]:
    return (slot for _, slot in interface.outputs.values())


DIGEST = """\
/* The sum of (word + 1) * factor^i over words of 64 bits. */
static uint64_t digest(const void *data, size_t bytes) {
    uint64_t found = 0, factor = 1;
    for (size_t at = 0; at < bytes; at += 8, factor *= UINT64_C(0x9e3779b97f4a7c15)) {
        uint64_t word = 0;
        memcpy(&word, (const char *)data + at, bytes - at < 8 ? bytes - at : 8);
        found += (word + 1) * factor;
    }
    return found;
}
"""

BITS = """
/* Compares outputs and state with the trainer's, if both were compiled in the same way. */
static int compare_bits(NAME *self, const void *const *outputs) {
    int good = 1;
    if (!SAME_BUILD || strcmp(__VERSION__, TRAINER_COMPILER)) {
        puts("state: not compared bit by bit: compiler, flags or machine are not the trainer's");
        return good;
    }
    for (size_t at = 0; at < NAME_about.output_count; at++) {
        const NAME_tensor *tensor = &NAME_about.outputs[at];
        if (digest(outputs[at], tensor->bytes) == trained_outputs[at]) continue;
        printf("%s: not the trainer's bits\\n", tensor->name);
        good = 0;
    }
    for (size_t at = 0; at < NAME_about.variable_count; at++) {
        const NAME_tensor *tensor = &NAME_about.variables[at];
        if (digest(NAME_variable(self, at), tensor->bytes) == trained_state[at]) continue;
        printf("%s: not the trainer's bits\\n", tensor->name);
        good = 0;
    }
    if (good) puts("outputs and state: the trainer's, bit by bit");
    return good;
}
"""


def function(interface: Interface) -> str:
    """The C function that compares; empty without a trainer's results."""
    step = interface.step
    if step is None or step.trained is None:
        return ""
    return BITS.replace("NAME", interface.form.name)


def call(interface: Interface) -> str:
    """The statements of the check that call the function, or say why they do not."""
    step = interface.step
    if step is None:
        return ""
    if step.trained is None:
        form = interface.form
        reason = "no compiler ran the trainer"
        if form.target.name != HERE:
            reason = f"the export is for {form.target.name}"
        elif form.optimize != "speed":
            reason = f"the trainer optimizes for speed, not for {form.optimize}"
        return f'    puts("state: not compared bit by bit: {reason}");\n'
    found = ", ".join(f"found_{member}" for member in interface.outputs) or "NULL"
    return f"""\
    const void *const computed[] = {{{found}}};
    good &= compare_bits(&self, computed);
"""
