"""Deltas of weights, which devices exchange: the functions of exported C, and their layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from popgraph.backends.c.export.image import Place
from popgraph.backends.c.export.interface import Interface, c_type
from popgraph.backends.c.memory.table import Slot
from popgraph.support.boxes import Box
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


def _boxes(interface: Interface) -> Mapping[str, Box]:
    """The parts of tensors that are exchanged, where that is not all."""
    return {} if interface.step is None else interface.step.boxes


def layout(interface: Interface) -> list[dict[str, object]]:
    """The name, shape and first number of each tensor in a delta; of a part, also its place."""
    found, first, boxes = list[dict[str, object]](), 0, _boxes(interface)
    for _, slot in exchanged(interface):
        box = boxes.get(slot.label)
        shape = slot.shape if box is None else box.sizes
        row: dict[str, object] = {"name": slot.label, "shape": [*shape], "first": first}
        if box is not None:
            row |= {"starts": [*box.starts], "of": [*slot.shape]}
        found.append(row)
        first += prod(shape)
    return found


def _parts(interface: Interface) -> Iterator[tuple[int, int, int, int, int]]:
    """The runs of the tensors: slot, first element, number, distance and length of runs."""
    boxes = _boxes(interface)
    for at, slot in exchanged(interface):
        if slot.label in boxes:
            yield from ((at, *rows) for rows in boxes[slot.label].rows(slot.shape))
        else:
            count = prod(slot.shape)
            yield at, 0, 1, count, count


def declarations(interface: Interface) -> str:
    """The declarations for the header; empty without a training step."""
    if interface.step is None:
        return ""
    tensors, name = exchanged(interface), interface.form.name
    if not tensors:
        return "\n/* There are no deltas of weights: they are not all of f32 or all of f64. */\n"
    number, macro = c_type(tensors[0][1]), name.upper()
    count = sum(runs * length for *_, runs, _, length in _parts(interface))
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
    parts = [(*part, _first(part[0], places)) for part in _parts(interface)]
    rows = "".join(f"    {{{', '.join(map(str, part))}}},\n" for part in parts)
    rom = f"(const char *)self->slots[{interface.slots - 1}]"
    has_rom = any(place != "SIZE_MAX" for *_, place in parts)
    initial = f"(const {number} *)(const void *)({rom} + part->initial)" if has_rom else "NULL"
    each = f"""\
    if (bytes != {macro}_DELTA_BYTES) return {macro}_BAD_SIZE;
    const {name}_part *const end = {name}_parts + {name}_part_count;
    for (const {name}_part *part = {name}_parts; part < end; part++) {{"""
    run = "for (size_t run = 0, at = part->first; run < part->runs; run++, at += part->stride)"
    yield f"""\
/*
 * The weights that devices exchange: slot, first element, runs of elements, distance and length of
 * these, and offset of the initial value in ROM.
 */
typedef struct {{
    size_t slot, first, runs, stride, length, initial;
}} {name}_part;

enum {{ {name}_part_count = {len(parts)} }};
static const {name}_part {name}_parts[] = {{
{rows}}};

int {name}_get_weights(const {name} *self, {number} *weights, size_t bytes) {{
{each}
        const {number} *now = (const {number} *)self->slots[part->slot];
        {run} {{
            memcpy(weights, now + at, part->length * sizeof({number}));
            weights += part->length;
        }}
    }}
    return {macro}_OK;
}}

int {name}_set_weights({name} *self, const {number} *weights, size_t bytes) {{
{each}
        {number} *now = ({number} *)self->slots[part->slot];
        {run} {{
            memcpy(now + at, weights, part->length * sizeof({number}));
            weights += part->length;
        }}
    }}
    return {macro}_OK;
}}

int {name}_get_delta(
    const {name} *self, const {number} *base, {number} *delta, size_t bytes) {{
{each}
        const {number} *now = (const {number} *)self->slots[part->slot], *old = NULL;
        if (base == NULL && part->initial != SIZE_MAX) old = {initial};
        {run} {{
            for (size_t one = at; one < at + part->length; one++) {{
                const {number} before = base != NULL ? *base++ : old != NULL ? old[one] : 0;
                *delta++ = now[one] - before;
            }}
        }}
    }}
    return {macro}_OK;
}}

int {name}_apply_delta({name} *self, const {number} *delta, size_t bytes, {number} weight) {{
{each}
        {number} *now = ({number} *)self->slots[part->slot];
        {run} {{
            for (size_t one = at; one < at + part->length; one++) now[one] += weight * *delta++;
        }}
    }}
    return {macro}_OK;
}}
"""
