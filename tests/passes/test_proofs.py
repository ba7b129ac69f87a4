"""Proves the laws of all rewrites, and runs every rewrite on a module in which it must fire."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)

from popgraph.backends.reference import evaluate
from popgraph.dialects import graphcore as gc
from popgraph.dialects import tile
from popgraph.dialects.element_types import BY_NAME as IR
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.program import GraphOp, ReturnOp
from popgraph.dialects.tile import affine
from popgraph.passes import proofs
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.by_law import ByLaw
from popgraph.passes.graphcore.canonicalize.rewriting import AnyRule, apply_rules
from popgraph.passes.graphcore.contract_in_words import ContractInWords
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.passes.structured.analysis.operand_maps import through_view
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.fusion.fuse_epilogue import FuseEpilogue
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME
from popgraph.support.laws import (
    FIRED,
    STATUSES,
    Law,
    Over,
    Term,
    function,
    literal,
    real_law,
    variable,
)
from popgraph.support.machine import PRESETS
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target
from popgraph.testing import assert_same_meaning
from tests.checking import check_ir
from tests.dialects.graphcore_run import build
from tests.dialects.graphcore_samples import table
from tests.passes.case_text import parse, pipeline
from tests.passes.rule_modules import Build, Literal, RuleModule, rule_modules
from tests.sampling import share

z3 = pytest.importorskip("z3")
proving = pytest.importorskip("tests.proving")

CASES = Path(__file__).parent / "cases"
STATED = {one.name: one for one in proofs.stated()}
X, C = variable("x"), literal("c")


def laws() -> list[tuple[str, Law, str]]:
    """The distinct laws, each with an element type, and the first rewrite that states it."""
    found: dict[tuple[Law, str], str] = {}
    for one in STATED.values():
        for law in one.proof.laws:
            if law.over is not Over.ELEMENTS:
                found.setdefault((law, ""), one.name)
            elif (law, "any") not in found:
                found[law, "any"] = one.name
                found |= {(law, element): one.name for element in proving.types_of(law)}
    return [(name, *key) for key, name in found.items() if key[1] != "any"]


LAWS = laws()
SLOW = [
    one
    for one in LAWS
    if one[0] in ("MultiplyByReciprocal", "DropRoundTrip") and not (one[1].is_exhaustive(one[2]))
]
"""Laws whose proofs take seconds, up to a minute."""


@pytest.mark.parametrize("kind", Over)
def test_laws_are_proven(kind: Over) -> None:
    cases = [one for one in LAWS if one[1].over is kind and one not in SLOW]
    chosen = share(f"laws over {kind.value}", cases, 8, lambda one: (one[0], len(one[1].types)))
    for _, law, element in chosen:
        if element not in law.unproven:
            finding = proving.proven(law, element)
            assert finding.is_proven, str(finding)


def test_slow_laws_are_proven() -> None:
    for _, law, element in SLOW:
        finding = proving.proven(law, element)
        assert finding.is_proven, str(finding)


def test_every_rule_has_a_proof() -> None:
    listed = {rule for rules in proofs.RULES.values() for rule in rules}
    assert set(_rules(AnyRule)) == listed
    for one in STATED.values():
        proof = one.proof
        assert one.status in STATUSES
        assert bool(proof.laws) or proof.reason, f"{one.name} has no law and no reason"
        reasons = proof.construction, proof.exhaustive, proof.approximate, proof.unproven
        assert sum(map(bool, reasons)) <= 1, f"{one.name} has several reasons"
    assert len(STATED) == len(list(proofs.stated())), "two rewrites have the same name"


def _rules(kind: type[Any]) -> Iterator[type[Any]]:
    """The rule classes of the package that construct objects."""
    for one in kind.__subclasses__():
        if (
            not one.__abstractmethods__
            and one.__module__.startswith("popgraph.")
            and one is not ByLaw
        ):
            yield one
        yield from _rules(one)


# Every rewrite fires


def values_of(element: str) -> Array:
    """All values of a narrow type, some of a wide one."""
    row = BY_NAME[element]
    if row.bits <= 8:
        return proving.all_values(element)
    if row.is_integer:
        ends = np.iinfo(row.numpy)
        return np.array([ends.min, ends.min + 1, 0, 1, 5, ends.max], row.numpy)
    numbers = [0.0, -0.0, 1.0, -1.5, 0.25, 3.0, np.inf, -np.inf, np.nan, 6e-8, 60000.0]
    return np.array(numbers).astype(row.numpy)


def derived_cases() -> list[tuple[type[ByLaw], Law, str]]:
    rules = [rule for rule in _rules(ByLaw) if issubclass(rule, ByLaw)]
    return [
        (rule, law, element)
        for rule in rules
        for law in rule.LAWS
        for element in (
            proving.types_of(law) if law.over is Over.ELEMENTS else sorted(law.types) or ["f32"]
        )
    ]


def test_derived_rules_fire_and_keep_the_meaning() -> None:
    """For every law and type: a module of its left side, with literals that satisfy it."""
    cases = share("laws that fire", derived_cases(), 4, lambda one: (one[0], one[1]))
    for rule, law, element in cases:
        arrays = proving.inputs_of(law, element, values_of)
        knowns = {leaf: array for leaf, array in arrays.items() if leaf.head == "literal"}
        rows = len(next(iter(arrays.values())))
        assert rows, f"{law} holds for no tested value of {element}"
        for row in {0, rows // 2} if knowns else {0}:
            same = np.all([array == array[row] for array in knowns.values()], axis=0)
            chosen = same if knowns else np.full(rows, True)
            given = {leaf: array[chosen] for leaf, array in arrays.items()}
            if not len(next(iter(given.values()))):
                continue  # A NaN equals nothing.
            given |= {leaf: given[leaf][:1] for leaf in knowns}
            check_firing(rule, law, given)


def check_firing(rule: type[ByLaw], law: Law, given: Mapping[Term, Array]) -> None:
    def is_known(leaf: Term) -> bool:
        return leaf.head == "literal"

    unsigned = law.given is not None and law.given.head == "unsigned"
    side = replace(law, before=_with_absolute(law.before)) if unsigned else law
    compilation, module = proving.module_of(side, given, ("before",), known=is_known)
    inputs = {leaf.text: array for leaf, array in given.items() if not is_known(leaf)}
    before, _ = evaluate(module, inputs, compilation.weights)
    count = FIRED[f"{rule.__name__}: {law}"]
    apply_rules(module, [rule(compilation.weights)])
    check_ir(module)
    assert FIRED[f"{rule.__name__}: {law}"] > count, f"{law} does not fire:\n{module}"
    after, _ = evaluate(module, inputs, compilation.weights)
    if law.over is Over.ELEMENTS:
        assert not np.any(proving.differ(before["before"], after["before"])), f"{law}"
    else:
        np.testing.assert_allclose(after["before"], before["before"], rtol=1e-6)


def _with_absolute(term: Term) -> Term:
    """The term with |x| for x, which is known to have no sign."""
    return (
        Term(term.head, tuple(map(_with_absolute, term.operands)), term.text)
        if (term != X)
        else function("abs", X)
    )


def run_cases() -> None:
    """Runs the passes on their cases, whose results another test compares."""
    for name in {one.where for one in STATED.values()}:
        for path in sorted((CASES / name).glob("*.mlir")):
            source = path.read_text().partition("// -----\n")[0]
            compilation = Compilation()
            pipeline(source, name).apply(compilation, parse(compilation, source))


def check_rule_module(one: RuleModule) -> None:
    compilation, module = one.made()
    before, count = module.clone(), FIRED[one.rule]
    rule = {rule.__name__: rule for rule in _rules(AnyRule)}[one.rule]
    apply_rules(module, [rule(compilation.weights)])
    check_ir(module)
    assert FIRED[one.rule] > count, f"{one.rule} does not fire:\n{before}"
    assert_same_meaning(before, module, compilation.weights, tolerance=1e-6)
    if STATED[one.rule].status != "approximate":
        # Movements copy bits, so different elements show where each one goes.
        specials = np.resize(values_of(one.element), one.shape)
        labels = np.arange(prod(one.shape)).reshape(one.shape).astype(specials.dtype)
        for x in (specials, labels):
            wanted, found = (
                evaluate(each, {"x": x}, compilation.weights)[0]["y"] for each in (before, module)
            )
            assert not np.any(proving.differ(wanted, found)), f"{before}\n{module}"


def test_rules_fire_in_their_modules() -> None:
    for one in rule_modules():
        check_rule_module(one)


def test_every_rewrite_fires() -> None:
    run_cases()
    for one in rule_modules():
        check_rule_module(one)
    expand_samples()
    simplify_maps()
    multiply_halves()
    fuse_structured()
    test_derived_rules_fire_and_keep_the_meaning()
    silent = [name for name in STATED if not FIRED[name]]
    assert not silent, f"never fired: {', '.join(silent)}"


def expand_samples() -> None:
    """Expands a sample of every composite."""
    for title, sample in {one.op.name: one for one in table()}.items():
        if issubclass(sample.op, gc.Composite):
            module = build(sample).module()
            Expand().run(Compilation(), module)
            check_ir(module)
            assert title not in str(module)


def multiply_halves() -> None:
    """A matmul of bf16 on a machine with dot products of pairs."""
    compilation = Compilation()
    shapes = (40, 64), (64, 24)
    graph = GraphOp("main", ["x", "w"], [TensorType(IR["bf16"], shape) for shape in shapes])
    with ImplicitBuilder(graph.block):
        ReturnOp([gc.MatMulOp(*graph.block.args).result], ["y"])
    module = ModuleOp([graph])
    before = module.clone()
    ContractInWords(Target(PRESETS["zen4"])).run(compilation, module)
    assert_same_meaning(before, module, compilation.weights, tolerance=1e-2)


def fuse_structured() -> None:
    """Fusions that no case covers, on lowered modules."""

    def with_repeats(x: SSAValue, c: Literal) -> Operand:
        return gc.AddOp(gc.ExpOp(x), x)

    def with_other_domain(x: SSAValue, c: Literal) -> Operand:
        sums = gc.ReshapeOp(gc.MatMulOp(x, c(np.ones((5, 7)))), shape=(24, 7))
        return gc.AddOp(sums, c(np.arange(7.0)))

    def with_movement(x: SSAValue, c: Literal) -> Operand:
        sums = gc.MatMulOp(x, c(np.ones((5, 24))))
        return gc.AddOp(sums, gc.TransposeOp(sums_of(x), perm=(1, 0)))

    def sums_of(x: SSAValue) -> Operand:
        rows = gc.ReduceSumOp(x, axes=(1,), keepdims=True)
        return gc.BroadcastOp(rows, shape=(24, 24))

    fusions: Sequence[tuple[Build, tuple[int, ...], Sequence[Pass]]] = (
        (with_repeats, (2, 3), (FuseElementwise(),)),
        (with_other_domain, (4, 6, 5), (FuseElementwise(), FuseEpilogue())),
        (with_movement, (24, 5), (FuseEpilogue(), FuseElementwise())),
    )
    for made, shape, steps in fusions:
        compilation, module = RuleModule("", made, shape).made()
        GraphcoreToStructured().run(compilation, module)
        before = module.clone()
        for step in steps:
            step.run(compilation, module)
        check_ir(module)
        assert_same_meaning(before, module, compilation.weights, tolerance=1e-5)


# Index maps


def expressions() -> Iterator[tuple[AffineExpr, tuple[int, ...]]]:
    """Expressions over large domains, of the forms that views and movements compose to."""
    i, j, k = map(AffineExpr.dimension, range(3))
    flat = (i * 24 + j) * 36 + k
    for sizes in ((32, 24, 36), (1, 24, 36), (4096, 24, 36)):
        for by in (36, 24, 12, 6, 24 * 36, 72, 7):
            yield flat // by, sizes
            yield flat % by, sizes
            yield (flat // by) * by + flat % by, sizes
            yield (j * 36) // by, sizes
            yield (j * 36) % by, sizes
            yield ((flat // 36) // by) % 24, sizes
            yield flat.ceil_div(by), sizes
    draw = random.Random(4)
    for _ in range(100):
        terms = [draw.choice((i, j, k)) * draw.randrange(1, 40) for _ in range(3)]
        total = terms[0] + terms[1] + terms[2] + draw.randrange(-20, 20)
        by, again = draw.choice((2, 3, 4, 6, 8, 36)), draw.choice((2, 5, 12))
        yield (total // by) % again + total % by, (32, 24, 36)


def simplify_maps() -> None:
    for expression, sizes in expressions():
        affine.linear(expression, sizes)
    swapped = affine.selection((1, 0))
    affine.composed(swapped, swapped, (2, 3))


def test_simplified_index_maps_are_equal_over_their_domain() -> None:
    """A proof for each expression: no index of the domain has another value."""
    cases = list(expressions())
    for expression, sizes in share("simplified index maps", cases, 12, lambda one: len(one[1])):
        simple = affine.linear(expression, sizes).expression()
        dims = z3.Ints("i j k")
        solver = z3.Solver()
        solver.add(*(z3.And(dim >= 0, dim < size) for dim, size in zip(dims, sizes, strict=True)))
        solver.add(in_solver(expression, dims) != in_solver(simple, dims))
        assert solver.check() == z3.unsat, f"{expression} is not {simple} over {sizes}"


def views() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], AffineMap]]:
    """A view of one shape as another, and a map through which a loop nest reads it."""
    shapes = ((24, 36), (12, 72), (2, 12, 36), (24, 6, 6), (864,), (24, 1, 36), (4, 6, 6, 6))
    draw = random.Random(5)
    for source, viewed in permutations(shapes, 2):
        loops = len(viewed)
        identity = AffineMap.identity(loops)
        yield source, viewed, identity
        yield source, viewed, affine.selection(draw.sample(range(loops), loops))


def test_reads_through_views_reach_the_same_element() -> None:
    """For each view and map: the new map stays in the source, and reads the same position."""
    for source, viewed, map_ in share("views", list(views()), 8, lambda one: len(one[0])):
        # Loop `dim` runs over the axis that reads it.
        dimensions = map(AffineExpr.dimension, range(len(viewed)))
        sizes = tuple(viewed[map_.results.index(dim)] for dim in dimensions)
        graph = GraphOp("main", ["x"], [TensorType(f32, source)])
        view = tile.ViewOp(graph.block.args[0], viewed)
        found = through_view(view, map_, sizes, range(len(sizes)))
        assert found is not None
        dims = z3.Ints([f"d{dim}" for dim in range(len(sizes))])
        read = [in_solver(result, dims) for result in found.results]
        wanted = [in_solver(result, dims) for result in map_.results]
        solver = z3.Solver()
        solver.add(*(z3.And(dim >= 0, dim < size) for dim, size in zip(dims, sizes, strict=True)))
        inside = [z3.And(at >= 0, at < size) for at, size in zip(read, source, strict=True)]
        same = position(read, source) == position(wanted, viewed)
        solver.add(z3.Not(z3.And(*inside, same)))
        assert solver.check() == z3.unsat, f"{found} is not {map_} of {viewed} in {source}"


def position(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """The row-major position of an index."""
    strides = affine.row_major(shape)
    return sum(at * stride for at, stride in zip(index, strides, strict=True))


def in_solver(expression: AffineExpr, dims: Sequence[Any]) -> Any:
    """An index map for the solver, whose integer division rounds down for positive divisors."""
    match expression:
        case AffineConstantExpr():
            return z3.IntVal(expression.value)
        case AffineDimExpr():
            return dims[expression.position]
    assert isinstance(expression, AffineBinaryOpExpr)
    lhs, rhs = (in_solver(one, dims) for one in (expression.lhs, expression.rhs))
    match expression.kind:
        case AffineBinaryOpKind.Add:
            return lhs + rhs
        case AffineBinaryOpKind.Mul:
            return lhs * rhs
        case AffineBinaryOpKind.FloorDiv:
            return lhs / rhs
        case AffineBinaryOpKind.Mod:
            return lhs % rhs
    return -(-lhs / rhs)


# Exact expansions


def exact_expansions() -> Iterator[tuple[str, str, RuleModule]]:
    for element in ("f16", "bf16"):
        kind = BY_NAME[element].numpy
        for to in ("i8", "u8", "i16", "u16", "i4", "u4", "f8e4m3fn", "f8e5m2"):
            row = BY_NAME[to]
            for scale, zero in ((1.0, 0), (0.5, 3), (0.1, 0), (0.1, 1), (3.0, 2)):
                if zero and row.is_float:
                    continue
                options = gc.QuantizeOp.bounds_of(row) | {"to": IR[to]}
                given = np.array(scale).astype(kind), np.array(zero).astype(row.numpy)
                yield (
                    "quantize",
                    element,
                    RuleModule(
                        "",
                        lambda x, c, given=given, options=options: gc.QuantizeOp(
                            x, *map(c, given), **options
                        ),
                    ),
                )
    for element in ("i8", "u8", "i16", "u16", "i4", "u4", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz"):
        zero = np.array(1).astype(BY_NAME[element].numpy)
        for to in ("f32", "f16", "bf16"):
            yield (
                "dequantize",
                element,
                RuleModule(
                    "",
                    lambda x, c, zero=zero, to=to: gc.DequantizeOp(
                        x, c(np.float32(0.1)), c(zero), to=IR[to]
                    ),
                ),
            )


def test_exact_expansions_have_the_same_bits_for_all_inputs() -> None:
    cases = list(exact_expansions())
    assert {title for title, *_ in cases} == {
        one.name.removeprefix("expand ") for one in STATED.values() if one.status == "exhaustive"
    }
    for title, element, one in share("exact expansions", cases, 8, lambda one: one[0]):
        x = proving.all_values(element)
        compilation, module = RuleModule("", one.build, x.shape, element).made()
        before, _ = evaluate(module, {"x": x}, compilation.weights)
        Expand().run(compilation, module)
        assert title not in {op.name.removeprefix("graphcore.") for op in module.walk()}
        after, _ = evaluate(module, {"x": x}, compilation.weights)
        assert not np.any(proving.differ(before["y"], after["y"])), f"{title} of {element}"


# The prover itself


@pytest.mark.parametrize(
    ("law", "element"),
    [
        (Law(X + 0.0, X), "f16"),
        (Law(X + 0.0, X), "f32"),
        (Law(X * 0, function("sub", X, X)), "f64"),
        (Law(X / C, X * (1 / C)), "f16"),
        (Law(function("max", X, 1), function("relu", X)), "f32"),
        (Law((X * 2) / 2, X), "i8"),
        (Law((X * 2) / 2, X), "u32"),
        (Law(X < C, C < X), "i64"),
        (Law(function("where", variable("c"), X, variable("y")), X), "bf16"),
        (Law(X // C, X % C, function("lt", 0, C), Over.INDICES), ""),
        (real_law(X**2, X * 2), ""),
    ],
    ids=str,
)
def test_wrong_laws_have_counterexamples(law: Law, element: str) -> None:
    """The counterexample is a module; the reference backend runs it, and its outputs differ."""
    finding = proving.proven(law, element)
    assert finding.counterexample is not None, str(finding)
    text = str(finding)
    compilation = Compilation()
    results, _ = evaluate(parse(compilation, text), {}, compilation.weights)
    assert np.all(proving.differ(results["before"], results["after"])), text


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (Law(X, X, (X < 0) & function("lt", 0, X), Over.INDICES), "no value satisfies"),
        (Law(X // C, X // C, None, Over.INDICES), "divisor may be 0"),
    ],
)
def test_laws_that_never_apply_are_not_proven(law: Law, words: str) -> None:
    assert words in str(proving.proven(law))


def test_the_solver_computes_as_the_reference() -> None:
    """Both sides of a law, for values at the ends and in the middle of every type."""
    y = variable("y")
    binary = ["add", "sub", "mul", "div", "max", "min", "lt", "le", "eq"]
    terms = [*(function(name, X, y) for name in binary), -X, function("relu", X)]
    for element in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32"):
        for term in share(f"meanings in {element}", terms, 4, lambda term: len(term.operands)):
            law = Law(term, term)
            arrays = proving.inputs_of(law, element, values_of_few)
            wanted, _ = proving.sides_of(law, arrays)
            for at in range(0, len(wanted), 3):
                if term.head in ("max", "min") and not any(one[at] for one in arrays.values()):
                    continue  # Zeros of different signs: `Zeros` has all choices.
                assert_meaning(
                    law, element, {leaf: one[at] for leaf, one in arrays.items()}, wanted[at]
                )


def values_of_few(element: str) -> Array:
    found = values_of(element)
    return found if len(found) < 20 else found[:: len(found) // 11]


def assert_meaning(law: Law, element: str, row: Mapping[Term, Array], wanted: Array) -> None:
    meaning = proving.Elements(law, element)
    found = meaning.of(law.before)
    pairs = []
    for leaf, value in row.items():
        bits = z3.BitVecVal(int.from_bytes(value.tobytes(), "little"), BY_NAME[element].bits)
        is_float = element in proving.FORMATS
        fixed = z3.fpBVToFP(bits, z3.FPSort(*proving.FORMATS[element])) if is_float else bits
        pairs.append((meaning.leaves[leaf], fixed))
    result = z3.simplify(z3.substitute(found, *pairs))
    if z3.is_bool(result):
        assert z3.is_true(result) == bool(wanted), f"{law} of {row}"
        return
    if z3.is_fp(result) and np.isnan(wanted):
        assert z3.is_true(z3.simplify(z3.fpIsNaN(result)))
        return
    bits = z3.simplify(z3.fpToIEEEBV(result)) if z3.is_fp(result) else result
    assert bits.as_long() == int.from_bytes(wanted.tobytes(), "little"), f"{law} of {row}"
