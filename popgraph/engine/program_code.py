"""The code of a training program: compiled with a program for updates, or lowered for reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.backends.base import Executable, NativeExecutable
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.background import Backlog, Deferred
from popgraph.compiler import BuildRequest, for_this_machine, lower
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.program import ConstantOp, VariableOp
from popgraph.engine.replicas import SideBySide
from popgraph.engine.turns import InTurns, TakingTurns, UpdatingApart
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.bucket_exchanges import BucketExchanges
from popgraph.passes.graphcore.round_stochastically import RoundStochastically
from popgraph.passes.graphcore.spread_replicas import SpreadReplicas
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.micro_batches import (
    is_in_turns,
    moved_between_updates,
    settle_turn,
    update_alone,
)
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Options
from popgraph.support.errors import UnsupportedError
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class ProgramCode:
    """A program that is lowered to graphcore, and how code is made of it."""

    module: ModuleOp
    compilation: Compilation
    options: Options
    period: int
    """How many micro-batches make an update."""

    @classmethod
    def lowered_from(
        cls, module: ModuleOp, compilation: Compilation, options: Options, settled: bool = False
    ) -> ProgramCode:
        """Lowers a model to graphcore, with its optimizer, all replicas and their exchanges."""
        lower(module, compilation, options, until=_last_pass(options), settled=settled)
        # What training adds is in the graph now, and all replicas: they must not be added again.
        left = replace(
            options, training=None, extra_outputs=(), replicas=None, stochastic_rounding=False
        )
        period = 1 if options.training is None else options.training.optimizer.period
        return cls(module, compilation, left, period)

    def build(
        self, backend: str, threads: int, backlog: Backlog | None = None, replicas: int = 1
    ) -> Executable:
        """
        Makes the code: if several micro-batches make an update, there is a program for that.

        Where that cannot be apart, it is one for the last of them, too. With a `backlog`, all are
        quick code until they are tuned. With `replicas`, as many copies of the program run
        micro-batches side by side, if several make an update.
        """
        if not backend_named(backend).is_native or not is_in_turns(self.module):
            return replace(self._request(backend, threads), backlog=backlog).executable()
        if replicas > 1:
            return self._side_by_side(backend, max(1, threads // replicas), replicas)
        if backlog is None:
            return self._taking_turns(partial(self._turn, backend, threads))
        later = {last: Deferred() for last in (False, True)}
        made = self._taking_turns(lambda last: self._turn(backend, threads, last, later[last]))

        def tuned() -> Executable:
            """Programs that have run have memory in common: none of them is in it."""
            return self._taking_turns(
                lambda last: _built(later[last]) or self._turn(backend, threads, last)
            )

        return made if all(one.tuned for one in later.values()) else backlog.add(made, tuned)

    def _taking_turns(self, turn: Callable[[bool], Executable]) -> InTurns:
        others, last = turn(False), turn(True)
        assert isinstance(others, NativeExecutable) and isinstance(last, NativeExecutable), (
            "no host steps"
        )
        kind = TakingTurns if self._update is None else UpdatingApart
        return kind(others, last, COUNTER, self.period)

    def _side_by_side(self, backend: str, threads: int, replicas: int) -> SideBySide:
        if self._update is None:
            raise UnsupportedError(
                "the update of this program cannot be separated from its micro-batches",
                "replicas",
                "train without replicas",
            )
        others, last = (self._turn(backend, threads, last) for last in (False, True))
        assert isinstance(others, NativeExecutable) and isinstance(last, NativeExecutable), (
            "no host steps"
        )
        own, weights = moved_between_updates(self.module), self.compilation.weights
        twins = [others.twin(weights, own) for _ in range(replicas - 1)]
        return SideBySide(others, last, self.period, twins, own)

    @cached_property
    def _update(self) -> ModuleOp | None:
        """The program of the update alone, if it can be."""
        return update_alone(self.module, self.compilation.weights)

    def build_forward(
        self, backend: str, threads: int, results: Collection[str], trained: Executable
    ) -> Executable:
        """Makes a program of these results alone, with the variables of the one that trains."""
        request = self._request(backend, threads)
        graph = only_graph(request.module)
        for update in [op for op in graph.updates() if op.variable.text != SEED]:
            Rewriter.erase_op(update)
        set_outputs(graph, {name: one for name, one in graph.outputs.items() if name in results})
        made = request.executable()
        if isinstance(trained, InTurns):
            assert isinstance(made, NativeExecutable), "both programs are of one backend"
            trained.lend(made)
        else:
            made.share(trained)
        return made

    def _turn(
        self, backend: str, threads: int, last: bool, backlog: Backlog | None = None
    ) -> Executable:
        """The program of micro-batches, or of the last before an update, or of that alone."""
        request = replace(self._request(backend, threads), backlog=backlog)
        if last and self._update is not None:
            return replace(request, module=self._update.clone()).executable()
        settle_turn(request.module, request.compilation.weights, last=last)
        return request.executable()

    def lowered(self, threads: int) -> BuildRequest:
        """The program of kernels, as `build` compiles it for the default backend."""
        request = self._request(DEFAULT, threads)
        if is_in_turns(request.module):
            settle_turn(request.module, request.compilation.weights, last=True)
        options = for_this_machine(request.options, threads)
        lower(request.module, request.compilation, options)
        return request

    @property
    def peak_bytes(self) -> int:
        """
        Bytes of the tensors that are needed at once, in the order in which operations stand.

        Variables and constants always are; those of bodies are, all of them, while these run.
        """
        block = only_graph(self.module).block
        kept = sum(map(_bytes, block.args))
        freed = _freed(block)
        live = most = 0
        for op in block.ops:
            made = sum(map(_bytes, op.results))
            if isinstance(op, ConstantOp | VariableOp):
                kept += made
                continue
            live += made
            bodies = sum(_bytes(value) for inner in op.walk() for value in inner.results) - made
            most = max(most, live + bodies)
            live -= freed[op]
        return kept + most

    def _request(self, backend: str, threads: int) -> BuildRequest:
        module = self.module.clone()
        return BuildRequest(module, self.compilation, self.options, backend, threads)

    @property
    def exchanges(self) -> str:
        """What it tells other ranks, in its order: all of them have to have the same."""
        found = (op for op in self.module.walk() if isinstance(op, ExchangeOp))
        return "\n".join(f"{op.exchange} of {op.x.type}" for op in found)


def _last_pass(options: Options) -> str:
    """The last pass that changes what a program computes."""
    if options.stochastic_rounding:
        return RoundStochastically.name
    if BucketExchanges.of(options) and BucketExchanges.name not in options.disabled:
        return BucketExchanges.name
    if options.training is not None:
        return AddOptimizer.name
    several = options.replicas is not None and not options.replicas.is_one
    return SpreadReplicas.name if several else OnnxToGraphcore.name


def _bytes(value: SSAValue) -> int:
    if not isinstance(value.type, TensorType):
        return 0
    return prod(shape_of(value)) * dtype_of(value).numpy.itemsize


def _freed(block: Block) -> Mapping[Operation, int]:
    """The bytes that each operation of a block makes for nobody, or is the last to read."""
    freed: Counter[Operation] = Counter()
    read: set[SSAValue] = set()
    for op in reversed(block.ops):
        operands = {operand for inner in op.walk() for operand in inner.operands}
        last = [value for value in (*operands, *op.results) if value not in read]
        read.update(last)
        freed[op] = sum(_bytes(value) for value in last if _is_made_in(value, block))
    return freed


def _is_made_in(value: SSAValue, block: Block) -> bool:
    """Whether an operation of a block computes a value while the program runs."""
    owner = value.owner
    if not isinstance(owner, Operation) or isinstance(owner, ConstantOp | VariableOp):
        return False
    return owner.parent is block


def _built(later: Deferred) -> Executable | None:
    """The tuned program of a quick one; None where the cache had it."""
    return later.builds[0]() if later.builds else None
