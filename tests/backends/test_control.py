"""Tests branches and loops at every level and in C: rows, trip counts, memory and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, NameLoc, StringAttr

import popgraph
from popgraph.backends.c.build_program import build as build_c
from popgraph.backends.c.emit import sources
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.module import print_kernels, program_unit
from popgraph.backends.c.print.program import comment
from popgraph.backends.c.run.profile import Profile
from popgraph.backends.reference.executable import ReferenceExecutable
from popgraph.builder.pgraph import parse as parse_pgraph
from popgraph.compiler import for_this_machine, lower, parse_ir
from popgraph.dialects.check import check_ir
from popgraph.dialects.levels import LEVELS
from popgraph.dialects.locations import source
from popgraph.dialects.tile import LoopOp
from popgraph.dialects.tile.cut import CutAttr, Part
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, calls
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter
from popgraph.passes.analysis.notes import noted
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.structured.parallel import alternate_chunks
from popgraph.support.arrays import Array
from popgraph.support.errors import ParseError

NUMBER, TRUTH, ROW, ROWS = "tensor<i64>", "tensor<i1>", "tensor<3xf32>", "tensor<5x3xf32>"


def graph(body: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """A main graph with these inputs and outputs, each a name and a type."""
    names = ", ".join(f'#pg.bytes<"{name}">' for name in inputs)
    arguments = ", ".join(f"%{name} : {type_}" for name, type_ in inputs.items())
    made = ", ".join(f'#pg.bytes<"{name}">' for name in outputs)
    values = ", ".join(f"%{name}" for name in outputs)
    types = ", ".join(outputs.values())
    return (
        f"pg.graph @main inputs [{names}] {{\n^bb0({arguments}):\n{body}\n"
        f"pg.return [{made}], {values} : {types}\n}}"
    )


SUMS = """
%last, %all = graphcore.loop trips {trips} {reverse} carried (%h) scanned (%x) captured (%w)
    : (tensor<3xf32>, tensor<{trips}x3xf32>, tensor<3xf32>)
    -> (tensor<3xf32>, tensor<{trips}x3xf32>) {{
^bb1(%i : tensor<i64>, %c : tensor<3xf32>, %row : tensor<3xf32>, %u : tensor<3xf32>):
  %a = graphcore.add %c, %row : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %b = graphcore.mul %a, %u : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  pg.yield %b, %a : tensor<3xf32>, tensor<3xf32>
}}
"""
"""c' = (c + x[i]) * w, and the sums of all iterations as rows."""


def sums(trips: int, reverse: bool = False) -> str:
    rows = f"tensor<{trips}x3xf32>"
    return graph(
        SUMS.format(trips=trips, reverse="reverse" if reverse else ""),
        {"x": rows, "h": ROW, "w": ROW},
        {"last": ROW, "all": rows},
    )


COUNTING = graph(
    """
%h0 = pg.constant #pg.data<"000000000000000000000000" : tensor<3xf32>>
%n0 = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
%n, %last, %all = graphcore.loop trips 5 while %go limit %limit carried (%n0, %h0) scanned (%x)
    captured (%top)
    : (tensor<i1>, tensor<i64>, tensor<i64>, tensor<3xf32>, tensor<5x3xf32>, tensor<f32>)
    -> (tensor<i64>, tensor<3xf32>, tensor<5x3xf32>) {
^bb1(%i : tensor<i64>, %c : tensor<i64>, %s : tensor<3xf32>, %row : tensor<3xf32>,
     %t : tensor<f32>):
  %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
  %d = graphcore.add %c, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
  %r = graphcore.add %s, %row : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %m = graphcore.reduce_max %r {axes = [0], keepdims = false} : (tensor<3xf32>) -> tensor<f32>
  %g = graphcore.compare %m, %t {predicate = "lt"} : (tensor<f32>, tensor<f32>) -> tensor<i1>
  pg.yield %g, %d, %r, %r : tensor<i1>, tensor<i64>, tensor<3xf32>, tensor<3xf32>
}
""",
    {"x": ROWS, "go": TRUTH, "limit": NUMBER, "top": "tensor<f32>"},
    {"n": NUMBER, "last": ROW, "all": ROWS},
)
"""Sums rows until the maximum reaches `top`, for at most `limit` iterations."""

COLLATZ = graph(
    """
%zero = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
%go = pg.constant #pg.data<"01" : tensor<i1>>
%last, %steps = graphcore.loop while %go carried (%start, %zero)
    : (tensor<i1>, tensor<i64>, tensor<i64>) -> (tensor<i64>, tensor<i64>) {
^bb1(%i : tensor<i64>, %n : tensor<i64>, %s : tensor<i64>):
  %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
  %two = pg.constant #pg.data<"0200000000000000" : tensor<i64>>
  %bit = graphcore.rem %n, %two : (tensor<i64>, tensor<i64>) -> tensor<i64>
  %odd = graphcore.compare %bit, %one {predicate = "eq"}
      : (tensor<i64>, tensor<i64>) -> tensor<i1>
  %next = graphcore.cond %odd captured (%n) : (tensor<i1>, tensor<i64>) -> tensor<i64> {
  ^bb2(%m : tensor<i64>):
    %three = pg.constant #pg.data<"0300000000000000" : tensor<i64>>
    %up = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
    %a = graphcore.mul %m, %three : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %b = graphcore.add %a, %up : (tensor<i64>, tensor<i64>) -> tensor<i64>
    pg.yield %b : tensor<i64>
  } else {
  ^bb3(%m : tensor<i64>):
    %half = pg.constant #pg.data<"0200000000000000" : tensor<i64>>
    %b = graphcore.div %m, %half : (tensor<i64>, tensor<i64>) -> tensor<i64>
    pg.yield %b : tensor<i64>
  }
  %t = graphcore.add %s, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
  %more = graphcore.compare %next, %one {predicate = "gt"}
      : (tensor<i64>, tensor<i64>) -> tensor<i1>
  pg.yield %more, %next, %t : tensor<i1>, tensor<i64>, tensor<i64>
}
""",
    {"start": NUMBER},
    {"last": NUMBER, "steps": NUMBER},
)
"""The Collatz sequence: a branch in a loop without a bound."""

SIZE = 48


def products(compilation: Compilation) -> str:
    """Two nested loops that multiply by one constant matrix, which is packed once."""
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32) / 8
    literal = compilation.weights.attribute(matrix)
    type_ = f"tensor<4x{SIZE}xf32>"
    square = f"tensor<{SIZE}x{SIZE}xf32>"
    return graph(
        f"""
%y = graphcore.loop trips 2 carried (%h) : ({type_}) -> {type_} {{
^bb1(%i : tensor<i64>, %c : {type_}):
  %z = graphcore.loop trips 3 carried (%c) captured (%c) : ({type_}, {type_}) -> {type_} {{
  ^bb2(%j : tensor<i64>, %d : {type_}, %first : {type_}):
    %w = pg.constant {literal}
    %p = graphcore.mat_mul %d, %w : ({type_}, {square}) -> {type_}
    %q = graphcore.tanh %p : ({type_}) -> {type_}
    %r = graphcore.add %q, %first : ({type_}, {type_}) -> {type_}
    pg.yield %r : {type_}
  }}
  pg.yield %z : {type_}
}}
""",
        {"h": type_},
        {"y": type_},
    )


def parsed(text: str, compilation: Compilation) -> ModuleOp:
    module = parse_ir(text, compilation)
    check_ir(module)
    return module


def at_every_level(
    module: ModuleOp, compilation: Compilation, inputs: Mapping[str, Array]
) -> list[dict[str, Array]]:
    """Outputs of the module at each level in the reference, and in C."""
    found = []
    options = for_this_machine(Options())
    for level in LEVELS[1:]:
        lowered = lower(module.clone(), compilation, options, level=level)
        check_ir(lowered)
        run = ReferenceExecutable(lowered, compilation.weights)
        found += [run.run(inputs), run.run(inputs)]
    for threads in (1, 2):
        executable = popgraph.compiler.build(module.clone(), compilation, threads=threads)
        found += [executable.run(inputs), executable.run(inputs)]
    return found


def assert_all(found: list[dict[str, Array]], wanted: Mapping[str, Array]) -> None:
    for outputs in found:
        assert outputs.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
            assert outputs[name].shape == np.shape(array)


@pytest.mark.parametrize("trips", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_carries_and_stacks(trips: int, reverse: bool) -> None:
    compilation = Compilation()
    random = np.random.default_rng(trips)
    x = random.standard_normal((trips, 3)).astype(np.float32)
    h, w = random.standard_normal((2, 3)).astype(np.float32)
    carried, rows = h, np.zeros((trips, 3), np.float32)
    for at in reversed(range(trips)) if reverse else range(trips):
        rows[at] = carried + x[at]
        carried = rows[at] * w
    found = at_every_level(
        parsed(sums(trips, reverse), compilation), compilation, {"x": x, "h": h, "w": w}
    )
    assert_all(found, {"last": carried, "all": rows})


@pytest.mark.parametrize(
    ("go", "limit", "top", "turns"),
    [(True, 9, 2.5, 3), (True, 2, 99, 2), (True, 9, 99, 5), (False, 9, 9, 0), (True, -1, 9, 0)],
)
def test_a_loop_ends_early(go: bool, limit: int, top: float, turns: int) -> None:
    compilation = Compilation()
    x = np.ones((5, 3), np.float32)
    inputs = {
        "x": x,
        "go": np.array(go),
        "limit": np.array(limit, np.int64),
        "top": np.array(top, np.float32),
    }
    rows = np.cumsum(x, 0, dtype=np.float32) * (np.arange(5) < turns)[:, None]
    last = rows[turns - 1] if turns else np.zeros(3, np.float32)
    found = at_every_level(parsed(COUNTING, compilation), compilation, inputs)
    assert_all(found, {"n": np.array(turns), "last": last, "all": rows.astype(np.float32)})


@pytest.mark.parametrize(("start", "steps"), [(2, 1), (6, 8), (7, 16), (27, 111)])
def test_a_branch_in_a_loop_without_a_bound(start: int, steps: int) -> None:
    compilation = Compilation()
    module = parsed(COLLATZ, compilation)
    found = at_every_level(module, compilation, {"start": np.array(start, np.int64)})
    assert_all(found, {"last": np.array(1), "steps": np.array(steps)})


def test_constants_of_bodies_are_packed_when_the_program_is_loaded() -> None:
    compilation = Compilation()
    module = parsed(products(compilation), compilation)
    h = np.random.default_rng(1).standard_normal((4, SIZE)).astype(np.float32)
    found = at_every_level(module, compilation, {"h": h})
    assert_all(found, found[0])
    lowered = lower(module.clone(), compilation, for_this_machine(Options()))
    text = str(lowered)
    assert text.count("tile.prepare_program") == 2, "each caller has memory for its callee"
    assert "tile.loop" in text


RNN = graph(
    f"""
%y = graphcore.loop trips 3 carried (%h) captured (%w)
    : (tensor<16x{SIZE}xf32>, tensor<{SIZE}x{SIZE}xf32>) -> tensor<16x{SIZE}xf32> {{
^bb1(%i : tensor<i64>, %c : tensor<16x{SIZE}xf32>, %v : tensor<{SIZE}x{SIZE}xf32>):
  %t = graphcore.exp %v : (tensor<{SIZE}x{SIZE}xf32>) -> tensor<{SIZE}x{SIZE}xf32>
  %p = graphcore.mat_mul %c, %t
      : (tensor<16x{SIZE}xf32>, tensor<{SIZE}x{SIZE}xf32>) -> tensor<16x{SIZE}xf32>
  %q = graphcore.tanh %p : (tensor<16x{SIZE}xf32>) -> tensor<16x{SIZE}xf32>
  pg.yield %q : tensor<16x{SIZE}xf32>
}}
""",
    {"h": f"tensor<16x{SIZE}xf32>", "w": f"tensor<{SIZE}x{SIZE}xf32>"},
    {"y": f"tensor<16x{SIZE}xf32>"},
)


HOISTED = "hoist-invariants"


def test_work_on_captured_values_is_hoisted_out_of_the_loop() -> None:
    compilation = Compilation()
    module = parsed(RNN, compilation)
    random = np.random.default_rng(0)
    inputs = {
        "h": random.standard_normal((16, SIZE)).astype(np.float32),
        "w": (random.standard_normal((SIZE, SIZE)) - 4).astype(np.float32),
    }
    found = at_every_level(module, compilation, inputs)
    assert_all(found, found[0])
    text = str(lower(module.clone(), compilation, for_this_machine(Options()), until=HOISTED))
    main, body = text.split("pg.graph @loop_0")
    assert "exp" in main
    assert "exp" not in body
    kept = replace(for_this_machine(Options()), disabled=(HOISTED, "canonicalize"))
    main, body = str(lower(module, compilation, kept, until="hoist-constants")).split("@loop_0 inp")
    assert "exp" in body, "the claim can fail"


def test_a_constant_packed_outside_and_read_in_a_body_is_kept() -> None:
    """
    Constants that only `prepare` reads are freed once the program is loaded; this one must stay.
    """
    compilation = Compilation()
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32) / 8
    literal = compilation.weights.attribute(matrix)
    square = f"tensor<{SIZE}x{SIZE}xf32>"
    text = graph(
        f"""
%w = pg.constant {literal}
%z = graphcore.mat_mul %x, %w : ({square}, {square}) -> {square}
%y = graphcore.loop trips 2 carried (%x) : ({square}) -> {square} {{
^bb1(%i : tensor<i64>, %c : {square}):
  %v = pg.constant {literal}
  %s = graphcore.add %c, %v : ({square}, {square}) -> {square}
  pg.yield %s : {square}
}}
""",
        {"x": square},
        {"z": square, "y": square},
    )
    x = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
    found = at_every_level(parsed(text, compilation), compilation, {"x": x})
    assert_all(found, {"z": x @ matrix, "y": x + 2 * matrix})


class WithoutLast:
    """A bug: drops the last chunk of a loop."""

    @staticmethod
    def of(parts: Iterable[Part], *, alternating: bool) -> CutAttr:
        less = [replace(part, count=part.count - 1) for part in parts]
        return CutAttr.of(less, alternating=alternating)


@pytest.mark.parametrize("trips", [1, 2, 5])
@pytest.mark.parametrize("reverse", ["", "reverse"])
@pytest.mark.parametrize("careless", [False, True])
def test_iterations_alternate_the_order_of_chunks(
    trips: int, reverse: str, careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boustrophedon order: odd iterations run chunks backwards, with the same bits."""
    compilation = Compilation()
    random = np.random.default_rng(trips)
    matrix = random.standard_normal((64, 320)).astype(np.float32) / 8
    text = graph(
        f"""
%y, %rows = graphcore.loop trips {trips} {reverse} carried (%x)
    : (tensor<1x64xf32>) -> (tensor<1x64xf32>, tensor<{trips}x1x320xf32>) {{
^bb1(%i : tensor<i64>, %c : tensor<1x64xf32>):
  %w = pg.constant {compilation.weights.attribute(matrix)}
  %p = graphcore.mat_mul %c, %w : (tensor<1x64xf32>, tensor<64x320xf32>) -> tensor<1x320xf32>
  %s = graphcore.slice %p
      {{starts = #pg.ints[0, 0], sizes = #pg.ints[1, 64], steps = #pg.ints[1, 1]}}
      : (tensor<1x320xf32>) -> tensor<1x64xf32>
  pg.yield %s, %p : tensor<1x64xf32>, tensor<1x320xf32>
}}
""",
        {"x": "tensor<1x64xf32>"},
        {"y": "tensor<1x64xf32>", "rows": f"tensor<{trips}x1x320xf32>"},
    )
    x = random.standard_normal((1, 64)).astype(np.float32)
    options = for_this_machine(Options())
    options = replace(options, tuning=replace(options.tuning, alternating_l2=1 / 64))
    if careless and trips > 1:
        monkeypatch.setattr(alternate_chunks, "CutAttr", WithoutLast)
    found = []
    for disabled in ((), ("alternate-chunks",)):
        made = replace(options, disabled=disabled)
        lowered = lower(parsed(text, compilation), compilation, made)
        alternates = "popgraph_share_turn" in sources(lowered)["program.c"]
        assert alternates == (not disabled and trips > 1)
        executable = build_c(lowered, compilation.weights)
        found += [executable.run({"x": x}), executable.run({"x": x})]
    same = all(
        np.array_equal(one[name], found[-1][name]) for one in found for name in ("y", "rows")
    )
    assert same != (careless and trips > 1)
    if careless:
        return
    np.testing.assert_allclose(found[0]["rows"][-1 if not reverse else 0][:, :64], found[0]["y"])


def test_work_and_memory_of_loops_are_counted() -> None:
    compilation = Compilation()
    module = parsed(products(compilation), compilation)
    lowered = lower(module, compilation, for_this_machine(Options()))
    program = find_program(lowered, "main")
    counter = Counter(lowered)
    (loop,) = calls(program)
    assert isinstance(loop, LoopOp)
    assert loop.label == "loop_0 2 times"
    assert counter.call(loop).flops >= 2 * 3 * 2 * 4 * SIZE * SIZE
    assert 0 < max(bytes_in_use(program, counter)) <= program.arena.value.data


def test_profile_and_emit_know_loops() -> None:
    compilation = Compilation()
    module = parsed(sums(5), compilation)
    lowered = lower(module, compilation, for_this_machine(Options()))
    profile = Profile(lowered, compilation.weights)
    inputs = {"x": np.ones((5, 3), "f4"), "h": np.ones(3, "f4"), "w": np.ones(3, "f4")}
    profile.measure(inputs, 2)
    assert len(profile.times) == len(profile.calls) == 1
    source = sources(lowered)["program.c"]
    assert "for (i64 turn = 0; turn < 5; turn++)" in source


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("trips 5 ", "trips 4 "), "the results of graphcore.loop have types"),
        (("trips 5 ", ""), "the results of graphcore.loop have types"),
        (
            ("pg.yield %b, %a : tensor<3xf32>, ", "pg.yield %b : "),
            "the results of graphcore.loop have types",
        ),
        (("%i : tensor<i64>", "%i : tensor<i32>"), "takes"),
        (("  %a = graphcore.add %c, %row", "  %a = graphcore.add %c, %w"), "IsolatedFromAbove"),
    ],
)
def test_wrong_loops_are_refused(wrong: tuple[str, str], message: str) -> None:
    text = sums(5)
    assert wrong[0] in text
    with pytest.raises(ParseError, match=message):
        parse_ir(text.replace(*wrong), Compilation())


def test_emitted_c_has_comments_and_compiled_c_has_none() -> None:
    text = """opset 18
graph net(x: f32[4]) -> y {
    y = Loop(5, true, x, body=graph turn(i: i64, going: bool, h: f32[4]) -> (on, next) {
        on = going
        next = If(i < 2,
            then_branch=graph a() -> (r) { r = h * x },
            else_branch=graph b() -> (r) { r = Exp(h) - x })
    })
}
"""
    document = parse_pgraph(text, "net.pgraph")
    compilation = Compilation(document.weights)
    lowered = lower(document.module, compilation, for_this_machine(Options()))
    source = sources(lowered)["program.c"]
    for wanted in (
        "/* a turn of the loop y  net.pgraph:3 */\nstatic void loop_0_prepare",
        "/* the then branch of next  net.pgraph:5 */\nstatic void then_0_prepare",
        "/* the else branch of next  net.pgraph:5 */\nstatic void else_0_prepare",
    ):
        assert wanted in source
    program = find_program(lowered, "main")
    compiled = program_unit(program, Layout(program), print_kernels(lowered)).text
    assert "/*" not in compiled


@pytest.mark.parametrize("name", ["*/ int x; /*", "/*", "line\\", "é\n", "*/*/"])
def test_names_cannot_end_comments_in_c(name: str) -> None:
    made = comment(name)
    assert made.startswith("/* ") and made.endswith(" */")
    assert "*/" not in made[3:-2] and "/*" not in made[3:] and "\\" not in made
    assert made.isprintable() and made.isascii()


def test_notes_on_operations_are_not_part_of_their_names() -> None:
    """A note is, for example, the pipeline stage of an operation."""
    place = FileLineColLoc(StringAttr("net.pgraph"), IntAttr(3), IntAttr(1))
    named = NameLoc(StringAttr("MatMul:0"), place)
    assert source(noted(named, ["stage 1", "more"])) == source(named) == "MatMul:0  net.pgraph:3"
