"""Deltas of weights, which devices exchange: the functions of exported C, and their layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from popgraph.backends.c.export.image import Place
from popgraph.backends.c.export.interface import Interface, c_type
from popgraph.backends.c.memory.table import Slot
from popgraph.support.shapes import prod


def exchanged(interface: Interface) -> list[tuple[int, Slot]]:
    """
    The number and slot of each variable that devices exchange, in memory order.

    None of them if they are not all of f32 or all of f64.
    """
    step = interface.step
    names = () if step is None else step.weights
    found = [held for held in interface.variables.values() if held[1].label in names]
    types = {slot.dtype.name for _, slot in found if slot.dtype is not None}
    return found if types in ({"f32"}, {"f64"}) else []


def layout(interface: Interface) -> list[dict[str, object]]:
    """The name, shape and first number of each tensor in a delta."""
    found, first = list[dict[str, object]](), 0
    for _, slot in exchanged(interface):
        found.append({"name": slot.label, "shape": [*slot.shape], "first": first})
        first += prod(slot.shape)
    return found


def declarations(interface: Interface) -> str:
    """The declarations for the header; empty without a training step."""
    if interface.step is None:
        return ""
    tensors, name = exchanged(interface), interface.form.name
    if not tensors:
        return "\n/* There are no deltas of weights: they are not all of f32 or all of f64. */\n"
    number, macro = c_type(tensors[0][1]), name.upper()
    count = sum(prod(slot.shape) for _, slot in tensors)
    listed = ", ".join(str(row["name"]) for row in layout(interface))
    plain = "".join(one if one.isprintable() and one.isascii() else "?" for one in listed)
    return f"""
/*
 * The weights that steps change, as one array, for exchange with a server or with other devices:
 * {plain.replace("*/", "* /").replace("/*", "/ *")}.
 * {name}.json has their shapes. All functions return {macro}_BAD_SIZE, and do nothing, unless
 * `bytes` is {macro}_DELTA_BYTES. The optimizer's state is not part of it: {name}_init clears it.
 */
#define {macro}_DELTA_COUNT {count}
#define {macro}_DELTA_BYTES ({macro}_DELTA_COUNT * sizeof({number}))
int {name}_get_weights(const {name} *self, {number} *weights, size_t bytes);
int {name}_set_weights({name} *self, const {number} *weights, size_t bytes);

/*
 * delta = weights - base. A null base is the weights of {name}_init, which are in ROM: the first
 * round needs no copy in RAM.
 */
int {name}_get_delta(
    const {name} *self, const {number} *base, {number} *delta, size_t bytes);

/* weights += weight * delta */
int {name}_apply_delta({name} *self, const {number} *delta, size_t bytes, {number} weight);
"""


def _first(number: int, places: Sequence[tuple[int, Place]]) -> str:
    """The offset of an initial value in ROM; SIZE_MAX if it is all zeros, which ROM leaves out."""
    return next(
        (str(place.offset) for first, place in places if first + place.number == number),
        "SIZE_MAX",
    )


def functions(interface: Interface) -> Iterator[str]:
    """The functions of `declarations`."""
    tensors, name, macro = exchanged(interface), interface.form.name, interface.form.name.upper()
    if not tensors:
        return
    number = c_type(tensors[0][1])
    places = [(one.first, place) for one in interface.programs for place in one.image.firsts]
    rows = "".join(
        f"    {{{at}, {prod(slot.shape)}, {_first(at, places)}}},\n" for at, slot in tensors
    )
    rom = f"(const char *)self->slots[{interface.slots - 1}]"
    has_rom = any(_first(at, places) != "SIZE_MAX" for at, _ in tensors)
    initial = f"(const {number} *)(const void *)({rom} + part->first)" if has_rom else "NULL"
    yield f"""\
/* The weights that devices exchange: slot, elements, and offset of the initial value in ROM. */
typedef struct {{
    size_t slot, count, first;
}} {name}_part;

enum {{ {name}_part_count = {len(tensors)} }};
static const {name}_part {name}_parts[] = {{
{rows}}};

int {name}_get_weights(const {name} *self, {number} *weights, size_t bytes) {{
    if (bytes != {macro}_DELTA_BYTES) return {macro}_BAD_SIZE;
    for (const {name}_part *part = {name}_parts; part < {name}_parts + {name}_part_count; part++) {{
        memcpy(weights, self->slots[part->slot], part->count * sizeof({number}));
        weights += part->count;
    }}
    return {macro}_OK;
}}

int {name}_set_weights({name} *self, const {number} *weights, size_t bytes) {{
    if (bytes != {macro}_DELTA_BYTES) return {macro}_BAD_SIZE;
    for (const {name}_part *part = {name}_parts; part < {name}_parts + {name}_part_count; part++) {{
        memcpy(self->slots[part->slot], weights, part->count * sizeof({number}));
        weights += part->count;
    }}
    return {macro}_OK;
}}

int {name}_get_delta(
    const {name} *self, const {number} *base, {number} *delta, size_t bytes) {{
    if (bytes != {macro}_DELTA_BYTES) return {macro}_BAD_SIZE;
    for (const {name}_part *part = {name}_parts; part < {name}_parts + {name}_part_count; part++) {{
        const {number} *now = (const {number} *)self->slots[part->slot], *old = base;
        if (base != NULL) base += part->count;
        else if (part->first != SIZE_MAX) old = {initial};
        for (size_t at = 0; at < part->count; at++)
            delta[at] = old == NULL ? now[at] : now[at] - old[at];
        delta += part->count;
    }}
    return {macro}_OK;
}}

int {name}_apply_delta({name} *self, const {number} *delta, size_t bytes, {number} weight) {{
    if (bytes != {macro}_DELTA_BYTES) return {macro}_BAD_SIZE;
    for (const {name}_part *part = {name}_parts; part < {name}_parts + {name}_part_count; part++) {{
        {number} *now = ({number} *)self->slots[part->slot];
        for (size_t at = 0; at < part->count; at++) now[at] += weight * delta[at];
        delta += part->count;
    }}
    return {macro}_OK;
}}
"""
