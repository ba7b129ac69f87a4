"""Tests that printing a syntax tree and parsing it gives the same tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from popgraph.builder.pgraph.print.expression_text import reserved
from popgraph.builder.pgraph.print.formatter import format_file
from popgraph.builder.pgraph.syntax import tree
from popgraph.builder.pgraph.syntax.parser import parse_file
from popgraph.builder.pgraph.syntax.source import Source
from tests.sampling import examples

Strategy = st.SearchStrategy[Any]

NOWHERE = tree.Span(1, 1, 1, 1)
MISSING = tree.Missing(NOWHERE)


def made(kind: Callable[..., Any], *parts: Strategy) -> Strategy:
    """Nodes of one kind."""
    return st.builds(kind, st.just(NOWHERE), *parts)


def many(part: Strategy, least: int = 0, most: int = 2) -> Strategy:
    return st.lists(part, min_size=least, max_size=most).map(tuple)


names = made(tree.Name, st.sampled_from(["x", "w2", "a b", "é", "`\\", *sorted(reserved())]))
texts = made(tree.Text, st.text(max_size=5))
docs = st.sampled_from(["", "A line.", "Two lines,\nof one.\n\nAnd more: `x`, \\n."])
paths = made(tree.Path, many(names, 1, 3))
numbers = made(tree.Number, st.integers(-(10**20), 10**20) | st.floats(allow_nan=False))
leaves = st.one_of(
    names,
    numbers,
    texts,
    made(tree.Truth, st.booleans()),
    made(tree.Bytes, st.binary(max_size=4)),
    made(tree.Unknown),
)
SYMBOLS = ["+", "-", "*", "/", "%", "@", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or", "|>"]


def arguments(expression: Strategy) -> Strategy:
    value = expression | st.just(MISSING)
    return many(made(tree.Argument, st.none() | names, value), most=3)


def extended(inner: Strategy) -> Strategy:
    """Expressions composed of smaller ones; `expressions` adds the kinds with blocks."""
    not_number = inner.filter(lambda node: not isinstance(node, tree.Number))
    parts = st.one_of(
        inner,
        made(tree.Slice, *[st.none() | inner] * 3),
        made(tree.Everything),
        st.just(MISSING),
    )
    return st.one_of(
        made(tree.Binary, st.sampled_from(SYMBOLS), inner, inner),
        made(tree.Unary, st.just("-"), not_number),
        made(tree.Unary, st.just("not"), inner),
        made(tree.Choice, inner, inner, inner),
        made(tree.Index, inner, many(parts, 1)),
        made(tree.Items, many(inner, most=3)),
        made(tree.Call, paths, arguments(inner)),
    )


plain = st.recursive(leaves, extended, max_leaves=10)
short = st.recursive(leaves, extended, max_leaves=3)
types: Strategy = st.recursive(
    made(tree.Type, names, st.none() | many(short)),
    lambda inner: made(tree.OtherType, names, many(inner | texts)),
    max_leaves=3,
)
annotations = many(made(tree.Annotation, paths, st.none() | arguments(short)))
maybe_type = st.none() | types
targets = made(tree.Target, names | st.just(MISSING), maybe_type, annotations)
results = many(made(tree.Target, names, maybe_type, annotations))
parameters = many(made(tree.Parameter, names, maybe_type, annotations))


def statements(block: Strategy, expression: Strategy) -> Strategy:
    range_ = made(tree.Range, short, short) | short
    return st.one_of(
        made(tree.Assignment, many(targets, 1), expression, annotations),
        made(tree.Weight, names, types, short, annotations),
        made(tree.Constant, names, maybe_type, short, annotations),
        made(tree.Static, names, short, annotations),
        made(tree.For, many(targets, 1), range_, block, annotations),
        made(tree.Region, block, annotations),
        made(tree.Freeze, many(names | texts, 1), annotations),
    )


def blocks_of(block: Strategy) -> Strategy:
    """Blocks whose statements hold the given ones."""
    nothing = st.none()
    gives = st.one_of(nothing, made(tree.Gives, st.none() | names, results))
    branches = made(tree.Branches, short, gives, block, gives, block)
    turns = made(tree.Turns, short, st.none() | short) | short
    scanned = many(made(tree.Scanned, names | st.just(MISSING), maybe_type, turns), 1)
    states = many(made(tree.State, names, maybe_type, short | st.just(MISSING), annotations))
    loops = made(tree.Loop, scanned, st.none() | short, states, gives, block)
    endless = made(tree.Loop, st.just(()), short, states, gives, block)
    graphs = made(tree.Graph, st.none() | names, parameters, results, block, annotations)
    deep = st.one_of(
        plain,
        branches,
        made(tree.Branches, short, gives, block, nothing, branches),
        loops,
        endless,
        graphs,
        made(tree.Call, paths, many(made(tree.Argument, names, graphs | short), 1)),
        made(tree.Binary, st.just("+"), branches, short),
    )
    return made(tree.Block, docs, many(statements(block, deep)))


empty = made(tree.Block, docs, st.just(()))
blocks = blocks_of(empty | blocks_of(empty))
formals = many(made(tree.Formal, names, maybe_type, st.none() | short))
opsets = made(tree.Opset, st.sampled_from(["", "ai.onnx.ml", "a b.opset", "x"]), st.integers(1, 99))
items = st.one_of(
    opsets,
    made(tree.Import, texts, st.none() | many(names, 1)),
    made(tree.Static, names, short),
    made(tree.Graph, names, parameters, results, blocks, annotations),
    made(tree.Template, names, formals, results, blocks),
    made(tree.Function, paths, formals, formals, results, many(opsets), blocks, annotations),
    made(tree.Train, st.none() | names, parameters, blocks),
)
files = made(tree.File, docs, many(items, most=3))


def placeless(node: Any) -> Any:
    """The tree without source spans."""
    if isinstance(node, tuple):
        return tuple(map(placeless, node))
    if not isinstance(node, tree.Node):
        return node
    fields = {key: placeless(value) for key, value in vars(node).items() if key != "span"}
    return replace(node, span=NOWHERE, **fields)


def kinds(node: tree.Node) -> set[str]:
    return {type(node).__name__}.union(*map(kinds, tree.children(node)))


def assert_written_and_parsed(file: tree.File) -> None:
    text = format_file(file)
    parsed = placeless(parse_file(Source(text, "t")))
    assert repr(parsed) == repr(file), text
    assert format_file(parsed) == text


@settings(max_examples=examples(300), deadline=None)
@given(plain)
def test_an_expression_written_down_and_parsed_is_the_same(expression: Any) -> None:
    target = tree.Target(NOWHERE, tree.Name(NOWHERE, "y"), None)
    statement = tree.Assignment(NOWHERE, (target,), expression)
    block = tree.Block(NOWHERE, "", (statement,))
    graph = tree.Graph(NOWHERE, tree.Name(NOWHERE, "g"), (), (target,), block)
    assert_written_and_parsed(tree.File(NOWHERE, "", (tree.Opset(NOWHERE, "", 21), graph)))


@settings(max_examples=examples(200), deadline=None)
@given(files)
def test_a_tree_written_down_and_parsed_is_the_same(file: tree.File) -> None:
    for kind in sorted(kinds(file)):
        event(kind)
    assert_written_and_parsed(file)


def test_trees_of_every_kind_are_drawn() -> None:
    seen: set[str] = set()

    @settings(max_examples=800, derandomize=True, deadline=None, database=None)
    @given(files)
    def look(file: tree.File) -> None:
        seen.update(kinds(file))

    look()
    every = {
        name
        for name, kind in vars(tree).items()
        if isinstance(kind, type) and issubclass(kind, tree.Node)
    } - {"Node", "Computed"}  # Kinds that are never printed.
    assert seen == every
