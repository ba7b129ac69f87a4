"""The table of PopART's operator rules, and checks that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from popgraph.builder.opset.checks.node import Node, Unknown
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx.annotations import IN_PLACE, IN_PLACE_PRIORITIES, PARTIALS
from popgraph.dialects.onnx.record import record_of

Conflicts: TypeAlias = Iterator[str]
Rule: TypeAlias = Callable[[Node], Conflicts]
"""
Yields PopART's complaints about a node; raises `Unknown` if the rule depends on an unknown.

Only the first complaint is used, so a rule may rely on earlier conditions.
"""

CHECKS: dict[tuple[str, str], list[Rule]] = {}
"""The rules of sessions, by domain and operator, in PopART's order."""

IMMEDIATE_CHECKS: dict[tuple[str, str], list[Rule]] = {}
"""The rules that the builder itself enforces, mostly in shape inference."""


def checks(
    *names: str, own: Sequence[str] = (), table: dict[tuple[str, str], list[Rule]] = CHECKS
) -> Callable[[Rule], Rule]:
    """Registers a rule for ONNX operators, and for PopART's `own`."""

    def register(rule: Rule) -> Rule:
        for key in (*(("", name) for name in names), *((DOMAIN, name) for name in own)):
            table.setdefault(key, []).append(rule)
        return rule

    return register


def complaint(node: Node) -> str | None:
    """The first complaint of a session about an operator."""
    return _first([in_place, *CHECKS.get((node.domain, node.op_type), ())], node)


def immediate_complaint(node: Node) -> str | None:
    """The first complaint of PopART's builder."""
    return _first(IMMEDIATE_CHECKS.get((node.domain, node.op_type), ()), node)


def _first(rules: Iterable[Rule], node: Node) -> str | None:
    for rule in rules:
        with suppress(Unknown):
            for said in rule(node):
                return said
    return None


def aligned(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether shapes broadcast."""
    pairs = zip(reversed(first), reversed(second), strict=False)
    return all(1 in pair or pair[0] == pair[1] for pair in pairs)


def in_range(node: Node, text: str, default: int = -1, index: int = 0) -> Conflicts:
    """The attribute `axis` is in [-rank, rank) of an operand."""
    rank, axis = node.rank(index), node.number("axis", default)
    if not -rank <= axis < rank:
        yield f"{text.format(axis)} acceptable range [{-rank}, {rank - 1}]"


def axes(node: Node) -> Conflicts:
    """The reduced axes are axes of the operand."""
    rank = node.rank()
    for one in node.numbers("axes"):
        if not rank:
            yield f"Reduce input rank must be greater than 0, invalid Reduce {node.numbered}."
        if not -rank <= one < rank:
            yield f"Axis {one} is out of acceptable range [{-rank}, {rank - 1}]"


def unsupported(node: Node, text: str, *names: str) -> Conflicts:
    """
    Rejects attributes; `text` has `{}` for the name, and may contain `{node.id}` and the like.
    """
    for name in names:
        if node.attributes.get(name) is not None:
            yield text.format(name, node=node)


def chosen(node: Node, name: str, text: str, *choices: str) -> Conflicts:
    """
    An attribute, if given, is one of these words (default:

    ONNX's); otherwise it fills `{}` of `text`.
    """
    record = record_of("", node.op_type)
    choices = choices or (() if record is None else tuple(record.choices[name]))
    if name in node.attributes and (word := node.word(name)) not in choices:
        yield text.format(word)


def known(node: Node, text: str, *indices: int) -> Conflicts:
    """Rejects operands that are only known in a step; `text` as in `unsupported`."""
    for index in indices:
        if index in node.streamed:
            yield text.format(node.inputs[index], node=node)


def needed(node: Node, index: int, word: str, use: str = "determine the output shape") -> Conflicts:
    """An operand that determines a shape or offset must be known before a step."""
    yield from known(
        node,
        f"Need the value of the {{node.id}} input '{word}' to {use}, but was unable because "
        "[Tensor::getDataViaGraphTraversal] Could not work out tensor data for {}.",
        index,
    )


PARTIALS_TYPES = ("float", "half")
"""Accumulation types of matmuls and convolutions, in any letter case."""


def product_partials(given: str) -> str | None:
    """The complaint about the accumulation type of a matmul."""
    if given.lower() in PARTIALS_TYPES:
        return None
    return (
        f"Unable to get option 'partialsTypeMatMul' from string '{given}'. Possible values are "
        "'float' and 'half' in any letter case."
    )


def conv_partials(given: str) -> str | None:
    """The complaint about the accumulation type of a convolution."""
    return None if given.lower() in PARTIALS_TYPES else f"Bad partialsType '{given.lower()}'"


def partials(node: Node, wrong: Callable[[str], str | None]) -> Conflicts:
    """A node may name its accumulation type, or one for each of its convolutions."""
    given = node.words(PARTIALS) or [node.word(PARTIALS, PARTIALS_TYPES[0])]
    yield from filter(None, map(wrong, given))


def in_place(node: Node) -> Conflicts:
    """In-place variants of an operator are named with a priority each."""
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
