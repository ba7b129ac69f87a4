"""A reduce or a contract as one thing: inputs, body, epilogue, and how sums are combined."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute, Block, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.combiners import Combiner, combiners_of
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class Reduction:
    """A reduce or a contract: `epilogue(fold of body over inputs, ...)`; see `tile.reduce`."""

    inputs: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    epilogue_inputs: tuple[SSAValue, ...]
    epilogue_maps: tuple[AffineMap, ...]
    sizes: Shape
    parallel: int
    initial: tuple[Attribute, ...]
    body: Block
    epilogue: Block

    @staticmethod
    def of(op: tile.ReduceOp | tile.ContractOp) -> Reduction:
        return Reduction(
            tuple(op.inputs),
            op.input_maps,
            tuple(op.epilogue_inputs),
            op.epilogue_input_maps,
            op.sizes,
            op.parallel_rank,
            tuple(op.initial),
            op.body.block,
            op.epilogue.block,
        )

    @property
    def combiners(self) -> list[Combiner | None]:
        """For each accumulator how its next value is made of it and something else."""
        return combiners_of(self.body, len(self.inputs))
