"""Tests the text of reductions: the short form of products, and illegal contractions."""

from __future__ import annotations

import pytest

from popgraph.compiler import parse_ir
from popgraph.dialects.tile import ReduceOp, is_contraction
from popgraph.passes.base import Compilation
from popgraph.support.errors import ParseError

MAPS = "maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] epilogue_maps []"
BODY = """{
    ^bb0(%l: f32, %r: f32, %t: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %t, %p : f32
      tile.yield %s : f32
    }"""
SQUARES = BODY.replace("%l, %r", "%l, %l")
SCHEDULE = "schedule <n_dim 0, n_vectors 1, m_dim -1, mr 1, kc 4, lanes 4>"


def reduction(fold: str, kind: str = "f32") -> ReduceOp:
    """A reduction of a matrix and a vector, parsed and verified."""
    text = f"""pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {{
    ^bb0(%x: tensor<4x8x{kind}>, %w: tensor<8x{kind}>):
      %y = tile.reduce ins(%x, %w : tensor<4x8x{kind}>, tensor<8x{kind}>) domain [4, 8]
          parallel 1 : i64 {MAPS} {fold} epilogue {{
      ^bb0(%e: f32):
        tile.yield %e : f32
      }} -> tensor<4xf32>
      pg.return [#pg.bytes<"y">], %y : tensor<4xf32>
    }}"""
    module = parse_ir(text, Compilation())
    (op,) = (op for op in module.walk() if isinstance(op, ReduceOp))
    return op


@pytest.mark.parametrize("kind", ["f32", "bf16", "i8"])
def test_products_have_a_short_form(kind: str) -> None:
    """The body widens elements stored in fewer bits."""
    op = reduction("product f32", kind)
    assert is_contraction(op) and "product f32 epilogue" in str(op)
    assert len(op.body.block.ops) == (3 if kind == "f32" else 5)


def test_contractions_are_marked() -> None:
    """A sum of products that fusion created keeps its own loops, so it is not a contraction."""
    plain = reduction(f"initial [0.0 : f32] {BODY}")
    product = reduction(f"product [0.0 : f32] {BODY}")
    assert not is_contraction(plain) and "initial" in str(plain)
    assert is_contraction(product) and "product f32" in str(product)


@pytest.mark.parametrize(
    ("fold", "message"),
    [
        (f"product [1.0 : f32] {BODY}", "must start at zero"),
        (f"product [0.0 : f32] {SQUARES}", "must add the product of both inputs"),
        (f"initial [0.0 : f32] {BODY} {SCHEDULE}", "only contractions may have a schedule"),
    ],
)
def test_illegal_contractions_are_refused(fold: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        reduction(fold)


def test_a_product_of_another_number_of_factors_is_refused() -> None:
    with pytest.raises(ParseError, match="needs 2 inputs, not 1"):
        parse_ir(
            """pg.graph @main inputs [#pg.bytes<"x">] {
            ^bb0(%x: tensor<8xf32>):
              %y = tile.reduce ins(%x : tensor<8xf32>) domain [8] parallel 0 : i64
                  maps [affine_map<(d0) -> (d0)>] epilogue_maps [] product f32 epilogue {
              ^bb0(%e: f32):
                tile.yield %e : f32
              } -> tensor<f32>
              pg.return [#pg.bytes<"y">], %y : tensor<f32>
            }""",
            Compilation(),
        )
