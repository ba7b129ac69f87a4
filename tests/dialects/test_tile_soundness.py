"""Tests that the verifier refuses kernels that hang or leave their memory."""

from __future__ import annotations

import pytest

from popgraph import compiler
from popgraph.passes.base import Compilation
from popgraph.support.errors import ParseError

BODY = """
    %zero = arith.constant {first} : index
    %end = arith.constant 8 : index
    %step = arith.constant {step} : index
    scf.for %i = %zero to %end step %step {{
      %x = memref.load %a[{load}] : memref<8xf32>
      %y = arith.addf %x, %x : f32
      memref.store %y, %b[{store}] : memref<8xf32>
    }} {{prefetch = {recipe}}}
    %v = vector.load %a[%zero] : memref<8xf32>, vector<{lanes}xf32>
    vector.store %v, %b[%zero] : memref<8xf32>, vector<{lanes}xf32>
"""
FUNCTION = f"""
  func.func private @double(%chunk: index, %a: memref<8xf32>, %b: memref<8xf32>) {{{{{BODY}
    func.return
  }}}}"""
PROGRAM = f"""
builtin.module {{{{{FUNCTION}
  tile.program @main arena {{arena}} : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {{{{
  ^bb0:
  }}}} body {{{{
    %p = tile.buffer "input" at 0 : i64 named <"x"> : memref<8xf32>
    %q = tile.buffer "arena" at {{offset}} : i64 named <""> : memref<8xf32>
    tile.call @double chunks {{chunks}} : i64(%p, %q) : memref<8xf32>, memref<8xf32>
  }}}}
}}}}
"""
LAUNCH = f"""
builtin.module {{{{{FUNCTION}
  pg.graph @main inputs [#pg.bytes<"x">] {{{{
  ^bb0(%in: tensor<8xf32>):
    %y = tile.launch @double chunks {{chunks}} : i64 inplace [](%in)\
      : (tensor<8xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf32>
  }}}}
}}}}
"""
FORMS = {"program": PROGRAM, "launch": LAUNCH}
GOOD = {
    "first": 0, "step": 1, "load": "%i", "store": "%i", "lanes": 8, "arena": 96, "offset": 64,
    "chunks": 1, "recipe": "#tile.prefetch_ahead<argument 1, by 4>",
}  # fmt: skip
NEXT = "#tile.prefetch_next<argument {}, elements 8, lanes 4, share {}, lines 1, loops {}{}>"
BAD = [
    ({"step": 0}, "a loop step must be a positive constant, not 0"),
    ({"step": -1}, "a loop step must be a positive constant, not -1"),
    ({"load": "%end"}, "memref.load accesses element 8 of memory of size 8"),
    ({"store": "%end"}, "memref.store accesses element 8 of memory of size 8"),
    ({"first": -1}, "vector.load accesses elements -1 to 6 of memory of size 8"),
    ({"lanes": 16}, "vector.load accesses elements 0 to 15 of memory of size 8"),
    ({"chunks": -1}, "a launch needs at least 0 chunks, not -1"),
    ({"recipe": "4 : i64"}, "prefetch must be a prefetch recipe, not 4 : i64"),
    (
        {"recipe": "#tile.prefetch_ahead<argument 3, by 4>"},
        "must name one of the kernel's 2 memories",
    ),
    ({"recipe": "#tile.prefetch_ahead<argument 1, by 0>"}, "a distance of at least one element"),
    ({"recipe": NEXT.format(0, 2, 1, "")}, "must name one of the kernel's 2 memories"),
    ({"recipe": NEXT.format(1, 5, 1, "")}, "the share of a step must be between 1 and its lanes"),
    (
        {"recipe": NEXT.format(1, 2, 0, "")},
        "elements, lines and divisor of a prefetch must be at least 1",
    ),
    ({"recipe": NEXT.format(1, 2, 2, "")}, "needs more enclosing loops"),
    ({"recipe": NEXT.format(1, 2, 1, ", again [-1]")}, "must not be negative"),
    ({"recipe": NEXT.format(1, 2, 1, ", away 1")}, "a prefetch has no field away"),
    ({"recipe": "#tile.prefetch_next<argument 1>"}, "a prefetch needs the field elements"),
    ({"arena": 64}, "a buffer of bytes 64 to 96 exceeds the 64 bytes of arena memory"),
    ({"offset": -64}, "a buffer of bytes -64 to -32 exceeds the 96 bytes of arena memory"),
]


def parse(form: str, **changed: object) -> None:
    text = FORMS[form].format(**GOOD | changed)
    compiler.parse_ir(text, Compilation(), "kernel.mlir")


@pytest.mark.parametrize("form", FORMS)
def test_a_sound_program_is_accepted(form: str) -> None:
    parse(form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("changed", "message"), BAD, ids=lambda one: str(one)[:40])
def test_unsound_kernels_and_programs_are_refused(
    form: str, changed: dict[str, object], message: str
) -> None:
    if form != "program" and changed.keys() & {"arena", "offset"}:
        return  # launches have neither an arena nor offsets
    with pytest.raises(ParseError) as caught:
        parse(form, **changed)
    assert message in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_a_computed_loop_step_is_refused(form: str) -> None:
    text = FORMS[form].format(**GOOD).replace("step %step", "step %chunk")
    with pytest.raises(ParseError, match="a positive constant, not a computed value"):
        compiler.parse_ir(text, Compilation(), "kernel.mlir")


def test_a_launch_of_a_kernel_for_other_memory_is_refused() -> None:
    text = FORMS["launch"].format(**GOOD).replace("tensor<8xf32>", "tensor<9xf32>")
    with pytest.raises(
        ParseError, match="must take the chunk number and the memory of all operands"
    ):
        compiler.parse_ir(text, Compilation(), "kernel.mlir")


NEST = """
builtin.module {{
  func.func private @zero(%chunk: index, %y: memref<8xf32>) {{
    %0 = arith.constant 0 : index
    %1 = arith.constant 1 : index
    %8 = arith.constant 8 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %i = %0 to %8 step %1 {{
      scf.for %j = %0 to %8 step %1 {{
        memref.store %zero, %y[%j] : memref<8xf32>
      }} {{{inner}}}
      scf.for %k = %0 to %8 step %1 {{
        memref.store %zero, %y[%k] : memref<8xf32>
      }} {{{second}}}
    }} {{{outer}}}
    func.return
  }}
  pg.graph @main inputs [] {{
    %y = tile.launch @zero chunks 1 : i64 inplace [] () : () -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf32>
  }}
}}
"""


@pytest.mark.parametrize(
    ("recipes", "message"),
    [
        ({"inner": "interchange", "second": "interchange"}, "may hold one other such loop"),
        ({"inner": "split", "outer": "split"}, "may hold no other such loop"),
        ({"inner": "vectorize = array<i64: 4, 3>"}, "must cover the 8 iterations of the loop"),
        ({"inner": "vectorize = array<i64: 8, 0>"}, "must cover the 8 iterations of the loop"),
        ({"inner": "vectorize = 8 : i64"}, "must cover the 8 iterations of the loop"),
    ],
)
def test_unsound_recipes_of_loops_are_refused(recipes: dict[str, str], message: str) -> None:
    chosen = {"inner": "interchange", "second": "", "outer": "interchange"}
    compiler.parse_ir(NEST.format(**chosen), Compilation(), "nest.mlir")
    with pytest.raises(ParseError, match=message):
        compiler.parse_ir(NEST.format(**chosen | recipes), Compilation(), "nest.mlir")
