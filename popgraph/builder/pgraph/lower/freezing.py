"""Freezes weights: variables that match a pattern become constants."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Freeze, Name, Text
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.support.names import closest


def frozen_weights(
    source: Source, writer: GraphWriter, statements: Sequence[Freeze]
) -> tuple[str, ...]:
    """The names of frozen weights; a pattern that matches no weight is an error."""
    weights = [op.value_name.text for op in writer.block.ops if isinstance(op, Initializer)]
    named = {
        others: _named(source, weights, [one for one in statements if one.others is others])
        for others in (False, True)
    }
    left_out = set(weights) - {*named[True]} if any(one.others for one in statements) else set()
    found = tuple(name for name in weights if name in left_out or name in named[False])
    if weights and len(found) == len(weights):
        span = statements[0].patterns[0].span
        source.parse_error(span, "no weights are left to train", "freeze fewer weights")
    return found


def _named(source: Source, weights: Sequence[str], statements: Sequence[Freeze]) -> Collection[str]:
    """The weights that the patterns of statements match."""
    found: dict[str, None] = {}
    for pattern in (pattern for one in statements for pattern in one.patterns):
        matched = [weight for weight in weights if _matches(pattern, weight)]
        found.update(dict.fromkeys(matched))
        if matched:
            continue
        text = pattern.text if isinstance(pattern, Name) else pattern.value
        close = closest(text, weights, 0.5)
        source.parse_error(
            pattern.span,
            f"there is no weight `{text}`",
            f"did you mean `{close}`?" if close else "",
        )
    return found


def _matches(pattern: Name | Text, weight: str) -> bool:
    """A name matches a weight or a prefix of its path; a string is an fnmatch pattern."""
    if isinstance(pattern, Name):
        return weight == pattern.text or weight.startswith(f"{pattern.text}/")
    return fnmatchcase(weight, pattern.value)


def freeze(writer: GraphWriter, weights: Collection[str]) -> None:
    """Converts weights to constants, which training does not change."""
    constant = op_class("Constant", writer.opsets[""], "")
    for op in list(writer.block.ops):
        if not isinstance(op, Initializer) or op.value_name.text not in weights:
            continue
        name = op.value_name.text
        made = constant.make([], {"value": op.value}, {}, [name], [op.result.type], {})
        made.location = op.location
        writer.block.insert_op_before(made, op)
        op.result.replace_all_uses_with(made.results[0])
        writer.block.erase_op(op)
        writer.capture({name: made.results[0]})
