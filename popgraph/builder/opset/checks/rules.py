"""The kinds of rules that several of PopART's operators have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from popgraph.builder.opset.checks.node import Node
from popgraph.dialects.onnx.annotations import IN_PLACE, IN_PLACE_PRIORITIES, PARTIALS

Complaints: TypeAlias = Iterator[str]
Rule: TypeAlias = Callable[[Node], Complaints]
"""Says in PopART's words what it finds wrong; of what is not known it says nothing."""


def rank(place: int, wanted: Sequence[int] | range, text: str) -> Rule:
    """An operand has a rank among these; `{rank}` and `{shape}` of the text are what it has."""

    def rule(node: Node) -> Complaints:
        shape = node.shape(place)
        if shape is not None and len(shape) not in wanted:
            yield text.format(rank=len(shape), node=node)

    return rule


ANY = range(1 << 31)
"""Ranks without an end; `ANY[1:]` are those of tensors that are no scalars."""


def flag(name: str, text: str, default: int = 0) -> Rule:
    """An attribute is 0 or 1."""

    def rule(node: Node) -> Complaints:
        value = node.number(name, default)
        if value not in (0, 1):
            yield text.format(value=value, node=node)

    return rule


def at_least(name: str, least: int, text: str, default: int) -> Rule:
    """An attribute is a number from `least` on."""

    def rule(node: Node) -> Complaints:
        if (value := node.number(name, default)) < least:
            yield text.format(value=value, node=node)

    return rule


def absent(name: str, text: str) -> Rule:
    """An attribute that PopART does not know what to do with."""

    def rule(node: Node) -> Complaints:
        if node.attributes.get(name) is not None:
            yield text.format(node=node)

    return rule


def axis(text: str, default: int = -1, name: str = "axis", place: int = 0) -> Rule:
    """An attribute counts an axis of an operand, from the front or from behind."""

    def rule(node: Node) -> Complaints:
        shape, value = node.shape(place), node.number(name, default)
        if shape is not None and not -len(shape) <= value < len(shape):
            yield text.format(axis=value, least=-len(shape), most=len(shape) - 1, node=node)

    return rule


def axes(node: Node) -> Complaints:
    """The axes to reduce are axes of the operand."""
    shape = node.shape()
    found = node.numbers("axes")
    if shape == () and found:
        yield f"Reduce input rank must be greater than 0, invalid Reduce {node.numbered}."
    for one in found if shape else ():
        assert shape is not None, "it is no scalar"
        if not -len(shape) <= one < len(shape):
            yield f"Axis {one} is out of acceptable range [{-len(shape)}, {len(shape) - 1}]"


def same_elements(first: int, second: int, text: str) -> Rule:
    """Two operands have one element type; `{first}` and `{second}` are theirs."""

    def rule(node: Node) -> Complaints:
        pair = node.element(first), node.element(second)
        if pair[0] is not None and pair[1] is not None and pair[0] != pair[1]:
            yield text.format(first=pair[0].numpy, second=pair[1].numpy)

    return rule


def chosen(name: str, choices: Sequence[str], text: str) -> Rule:
    """An attribute is one of these words, where it is given."""

    def rule(node: Node) -> Complaints:
        if name in node.attributes and node.word(name) not in choices:
            yield text.format(value=node.word(name), node=node)

    return rule


PARTIALS_TYPES = ("float", "half")
"""In what products and convolutions may add up, in any case of letters."""


def product_partials(given: str) -> str | None:
    """What is wrong with the type in which a product is to add up."""
    if given.lower() in PARTIALS_TYPES:
        return None
    return (
        f"Unable to get option 'partialsTypeMatMul' from string '{given}'. Possible values are "
        "'float' and 'half' in any letter case."
    )


def conv_partials(given: str) -> str | None:
    """The same of a convolution."""
    return None if given.lower() in PARTIALS_TYPES else f"Bad partialsType '{given.lower()}'"


def partials(wrong: Callable[[str], str | None]) -> Rule:
    """A node may say in what it adds up: one word, or one for each of its convolutions."""

    def rule(node: Node) -> Complaints:
        for one in node.words(PARTIALS) or [node.word(PARTIALS, PARTIALS_TYPES[0])]:
            if (said := wrong(one)) is not None:
                yield said

    return rule


def constant(place: int, text: str) -> Rule:
    """An operand is known before a step: no input of the model; `{input}` is its name."""

    def rule(node: Node) -> Complaints:
        if place in node.streamed:
            yield text.format(input=node.inputs[place], node=node)

    return rule


def needed(place: int, word: str, use: str = "determine the output shape") -> Rule:
    """A shape, or a place in one, is known before a step."""
    return constant(
        place,
        f"Need the value of the {{node.id}} input '{word}' to {use}, but was unable because "
        "[Tensor::getDataViaGraphTraversal] Could not work out tensor data for {input}.",
    )


def in_place(node: Node) -> Complaints:
    """Operators in the place of one are named with a priority each."""
    names, priorities = (node.attributes.get(note) for note in (IN_PLACE, IN_PLACE_PRIORITIES))
    if (names is None) != (priorities is None):
        one = IN_PLACE if priorities is None else IN_PLACE_PRIORITIES
        yield (
            f"Either BOTH or NEITHER of the fields {IN_PLACE} and {IN_PLACE_PRIORITIES} must be "
            f"set, but only {one} is set"
        )
    elif isinstance(names, list) and isinstance(priorities, list) and len(names) != len(priorities):
        yield (
            f"For fields {IN_PLACE_PRIORITIES} and {IN_PLACE}, the number of elements must be the "
            f"same [ {len(priorities)} != {len(names)} ]"
        )
