"""The base of all passes, and the compilation that they work in."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from popgraph.dialects.program import WeightStore
from popgraph.dialects.registry import register
from popgraph.passes.options import Options


class Compilation(Context):
    """One compilation: the dialects that its text may use and the weights that it holds."""

    def __init__(self, weights: WeightStore | None = None) -> None:
        super().__init__()
        register(self)
        self.weights = weights if weights is not None else WeightStore()


@dataclass(frozen=True)
class Pass(ModulePass):
    """
    One step of the compiler: takes a module to one that means the same.

    The docstring's first line is what `popgraph passes` prints. `TOLERANCE` is how much the
    results may change, relative to the largest value: 0 promises the same bits.
    """

    TOLERANCE: ClassVar[float] = 0.0
    KEEPS_MEANING: ClassVar[bool] = True
    """False for a pass whose job is to change what the program does."""

    @classmethod
    def of(cls, options: Options) -> Pass | None:
        """The pass as these options want it; None when it does not apply."""
        return cls()

    @abstractmethod
    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        """Changes `module` in place."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """xDSL's entry: a plain context gets an empty weight store."""
        if not isinstance(ctx, Compilation):
            ctx = Compilation()
        self.run(ctx, op)
