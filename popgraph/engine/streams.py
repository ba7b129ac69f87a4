"""The tensors that enter and leave a program, and which values of a step are returned."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.engine.plan import StepPlan
from popgraph.support.dtypes import DType
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Stream:
    """One micro-batch of a tensor."""

    id: str
    dtype: DType
    shape: Shape

    @cached_property
    def elements(self) -> int:
        return prod(self.shape)

    def stacked(self, count: int) -> Stream:
        """A stream of `count` micro-batches at once."""
        return Stream(self.id, self.dtype, (count, *self.shape))


@dataclass(frozen=True)
class ReturnPolicy:
    """The values of an output that a step returns: every `period`th, the last one, or the sum."""

    period: int = 1
    last: bool = False
    summed: bool = False

    def keeps(self, batch: int, count: int) -> bool:
        """Whether the value of micro-batch `batch` of `count` is returned."""
        return batch == count - 1 if self.last else (batch + 1) % self.period == 0

    def of(self, count: int) -> list[int]:
        """The micro-batches, of `count`, whose values are returned; [0] for a sum."""
        return [0] if self.summed else [at for at in range(count) if self.keeps(at, count)]

    def axes(self, plan: StepPlan) -> Shape:
        """The leading axes of a returned array, without axes of size 1."""
        replicas = (plan.replicas,)
        before = () if self.last or self.summed else (plan.batches // self.period, plan.accumulate)
        return tuple(size for size in (*before, *replicas) if size != 1)
