"""Resolves operators, and sorts call arguments into inputs and attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Call,
    Expression,
    Missing,
    Name,
    Path,
    Span,
)
from popgraph.dialects.onnx import SchemaOp, all_schemas, op_class
from popgraph.dialects.onnx.schemas import PREFIXES
from popgraph.dialects.onnx.typeproto import from_text
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.writer import FunctionKey
from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest

GRAPHCORE = "ai.graphcore"

SYMBOLS = {
    "+": "Add",
    "-": "Sub",
    "*": "Mul",
    "/": "Div",
    "%": "Mod",
    "@": "MatMul",
    "**": "Pow",
    "==": "Equal",
    "<": "Less",
    "<=": "LessOrEqual",
    ">": "Greater",
    ">=": "GreaterOrEqual",
    "and": "And",
    "or": "Or",
}
"""The operator of each infix symbol; `!=` is Not of Equal, the unary `-` is Neg."""


@cache
def newest() -> dict[str, int]:
    """The newest operator set of each standard domain."""
    found: dict[str, int] = {}
    for schema in all_schemas():
        found[schema.domain] = max(found.get(schema.domain, 1), schema.since_version)
    return found


@dataclass(frozen=True)
class Operator:
    """A versioned operator; `schema` is None if only its domain is known."""

    op_type: str
    domain: str
    schema: Any = None
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The name in messages: `Conv-22`, `ai.graphcore.Nll`."""
        if self.schema is not None:
            return f"{self.op_type}-{self.schema.since_version}"
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def input_names(self) -> list[str]:
        return [] if self.schema is None else [formal.name for formal in self.schema.inputs]

    @property
    def since(self) -> int:
        """The operator set that introduced this version; 0 if unknown."""
        return 0 if self.schema is None else int(self.schema.since_version)

    def takes(self, name: str) -> bool:
        """Whether it has an input of this name, which may be an attribute in older versions."""
        return name in self.input_names

    def allowed(self, index: int) -> list[str]:
        """The element types allowed for an input; empty if unknown."""
        formal = self._formal(index)
        if formal is None:
            return []
        return [describe(from_text(one)).split("[")[0] for one in sorted(formal.types)]

    def like(self, index: int) -> list[int]:
        """The inputs that must have the same element type as this one."""
        formal = self._formal(index)
        if formal is None or not formal.is_homogeneous:
            return []
        variable = formal.type_str
        return [i for i, one in enumerate(self.schema.inputs) if one.type_str == variable]

    def _formal(self, index: int) -> Any:
        if self.schema is None or not self.schema.inputs:
            return None
        return self.schema.inputs[min(index, len(self.schema.inputs) - 1)]


def domain_of(path: Path, opsets: Mapping[str, int]) -> str:
    """Resolves a domain by its last part: `graphcore.Nll` is in `ai.graphcore`."""
    prefix = ".".join(part.text for part in path.parts[:-1])
    if prefix == "ai.onnx":
        return ""
    known = (*opsets, *PREFIXES, GRAPHCORE)
    if prefix in known:
        return prefix
    return next((one for one in known if one.rpartition(".")[2] == prefix), prefix)


def is_operator(name: str) -> bool:
    """Whether any version of the standard operator set has this operator."""
    return name in _standard()


@cache
def _standard() -> frozenset[str]:
    return frozenset(schema.name for schema in all_schemas() if not schema.domain)


def operator_of(
    source: Source,
    path: Path,
    opsets: Mapping[str, int],
    functions: Collection[FunctionKey] = (),
) -> Operator:
    """The operator that a call names; fails if its domain has no such operator."""
    op_type, domain = path.parts[-1].text, domain_of(path, opsets)
    if any(key[:2] == (domain, op_type) for key in functions):
        return Operator(op_type, domain)
    if domain not in PREFIXES:
        return Operator(op_type, domain)
    try:
        made: type[SchemaOp] = op_class(op_type, opsets.get(domain) or newest()[domain], domain)
    except PopgraphError as error:
        source.parse_error(path.span, error.what, error.hint)
        raise Failed from error
    graphs = dict.fromkeys(made.GRAPHS, "GRAPH")
    return Operator(op_type, domain, made.SCHEMA, {**made.KINDS, **graphs})


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call, sorted; inputs are in the order of the operator's definition."""

    inputs: list[Expression | Missing]
    attributes: dict[Name, Expression]


def sort_arguments(source: Source, operator: Operator, call: Call) -> Arguments:
    """Separates inputs, positional or named, from attributes; fails if an argument is neither."""
    inputs: list[Expression | Missing | None] = []
    attributes: dict[Name, Expression] = {}
    failed = False
    for argument in call.arguments:
        try:
            if argument.keyword is None:
                if attributes or None in inputs:
                    _positional_after_keyword(source, argument)
                inputs.append(argument.value)
            elif _is_attribute(operator, argument.keyword):
                _add_attribute(source, attributes, argument.keyword, argument.value)
            else:
                _add_input(source, operator, inputs, argument)
        except Failed:
            failed = True
    if failed:
        raise Failed
    return Arguments([Missing(call.span) if one is None else one for one in inputs], attributes)


def _positional_after_keyword(source: Source, argument: Argument) -> None:
    source.parse_error(
        argument.span,
        "positional inputs must precede named arguments",
        "move it to the front",
    )
    raise Failed


def _is_attribute(operator: Operator, keyword: Name) -> bool:
    return operator.schema is None or keyword.text in operator.kinds


def _add_attribute(
    source: Source,
    attributes: dict[Name, Expression],
    keyword: Name,
    value: Expression | Missing,
) -> None:
    if isinstance(value, Missing):
        source.parse_error(value.span, "to use the default of an attribute, omit it")
        raise Failed
    if any(known.text == keyword.text for known in attributes):
        source.parse_error(keyword.span, f"attribute `{keyword.text}` is given twice")
        raise Failed
    attributes[keyword] = value


def _add_input(
    source: Source,
    operator: Operator,
    inputs: list[Expression | Missing | None],
    argument: Argument,
) -> None:
    assert argument.keyword is not None
    name = argument.keyword.text
    if name not in operator.input_names:
        known = [*operator.kinds, *operator.input_names]
        close = closest(name, known, 0.5)
        hint = f"did you mean `{close}`?" if close else f"it takes {', '.join(known) or 'nothing'}"
        source.parse_error(
            argument.keyword.span, f"{operator.shown} has no attribute or input `{name}`", hint
        )
        raise Failed
    index = operator.input_names.index(name)
    inputs.extend([None] * (index + 1 - len(inputs)))
    if inputs[index] is not None:
        source.parse_error(argument.keyword.span, f"input `{name}` is given twice")
        raise Failed
    inputs[index] = argument.value


def span_of(call: Call) -> Span:
    """The position of messages about a whole call: its name."""
    return call.path.span
