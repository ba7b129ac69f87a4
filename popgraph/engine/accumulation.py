"""Requests for programs that accumulate gradients: one for micro-batches, one for the update."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from popgraph.backends.base import Executable
from popgraph.compiler import BuildRequest, lower
from popgraph.engine.program_code import ProgramCode
from popgraph.passes.graphcore.bucket_exchanges import BucketExchanges
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.support.errors import fitting_memory


@dataclass(frozen=True)
class AccumulatingRequest(BuildRequest):
    """
    A request for a program that is run for every micro-batch, and updates after the last one.

    The C backend makes two programs, which have the same variables: micro-batches do not pay for
    the update, and the memory is that of one micro-batch.
    """

    replicas: int = 1
    """How many micro-batches run side by side."""

    @staticmethod
    def of(request: BuildRequest, replicas: int = 1) -> AccumulatingRequest:
        """The same request, with programs of their own for updates."""
        given = {one.name: getattr(request, one.name) for one in fields(BuildRequest)}
        return AccumulatingRequest(**given, replicas=replicas)

    def executable(self) -> Executable:
        with fitting_memory():
            return self._code().build(self.backend, self.threads, self.backlog, self.replicas)

    def _code(self) -> ProgramCode:
        """The module as graphcore, with its optimizer."""
        training = self.options.training
        assert training is not None, "only a program that trains accumulates"
        last = BucketExchanges if BucketExchanges.of(self.options) else AddOptimizer
        lower(self.module, self.compilation, self.options, until=last.name, settled=self.settled)
        left = replace(self.options, training=None)
        return ProgramCode(self.module, self.compilation, left, training.optimizer.period)
