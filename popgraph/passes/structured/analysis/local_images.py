"""The type of the slice of an image that is held in local memory."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.dialects.tile.attributes import LayoutAttr, halo_of, with_layout


def narrowed(
    type_: TensorType[Attribute], axis: int, size: int, *, halo: bool = True
) -> TensorType[Attribute]:
    """A tensor that is dense or has a halo, with so many indices of one axis; there without one."""
    around, shape = halo_of(type_), list(type_.get_shape())
    assert around is not None, "local images are dense but for a halo"
    low, high = list(around.low), list(around.high)
    shape[axis] = size
    if not halo:
        low[axis] = high[axis] = 0
    plain = TensorType(type_.element_type, shape)
    if not any(low) and not any(high):
        return plain
    rows = zip(low, shape, high, strict=True)
    return with_layout(plain, LayoutAttr.moved(low, [sum(row) for row in rows]))
