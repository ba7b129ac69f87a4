"""The code of a training program, with a separate update program where possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

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
from popgraph.engine.alternating_programs import AlternatingPrograms, FusedUpdate, SeparateUpdate
from popgraph.engine.replicas import ParallelCopies
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.bucket_exchanges import BucketExchanges
from popgraph.passes.graphcore.round_stochastically import RoundStochastically
from popgraph.passes.graphcore.spread_replicas import SpreadReplicas
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.micro_batches import (
    counts_micro_batches,
    separate_update,
    specialize_micro_batch,
    variables_of_micro_batches,
)
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Options
from popgraph.support.errors import UnsupportedError
from popgraph.support.memo import cached_property
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class ProgramCode:
    """A program lowered to graphcore, and the options to build it."""

    module: ModuleOp
    compilation: Compilation
    options: Options
    period: int
    """Micro-batches per update."""

    @classmethod
    def lowered_from(
        cls, module: ModuleOp, compilation: Compilation, options: Options, settled: bool = False
    ) -> ProgramCode:
        """Lowers a model to graphcore, with its optimizer, all replicas and their exchanges."""
        lower(module, compilation, options, until=_last_pass(options), settled=settled)
        # The graph already contains what training adds, and all replicas: do not add them again.
        left = replace(
            options, training=None, extra_outputs=(), replicas=None, stochastic_rounding=False
        )
        period = 1 if options.training is None else options.training.optimizer.period
        return cls(module, compilation, left, period)

    def build(
        self, backend: str, threads: int, backlog: Backlog | None = None, replicas: int = 1
    ) -> Executable:
        """
        Builds the program; if several micro-batches make an update, with an update program.

        If the update cannot be separated, a second program runs the last micro-batch with the
        update. With a `backlog`, the programs are unoptimized until tuned ones are built. With
        `replicas`, as many copies of the program run micro-batches in parallel, if several make an
        update.
        """
        if not backend_named(backend).is_native or not counts_micro_batches(self.module):
            return replace(self._request(backend, threads), backlog=backlog).executable()
        if replicas > 1:
            return self._parallel(backend, max(1, threads // replicas), replicas)
        if backlog is None:
            return self._alternating(partial(self._build_program, backend, threads))
        later = {last: Deferred(is_automatic=backlog.is_automatic) for last in (False, True)}
        made = self._alternating(
            lambda last: self._build_program(backend, threads, last, later[last])
        )

        def tuned() -> Executable:
            """Builds both anew: programs that have run share memory, which a tuned one does not."""
            return self._alternating(
                lambda last: _built(later[last]) or self._build_program(backend, threads, last)
            )

        return made if all(one.tuned for one in later.values()) else backlog.add(made, tuned)

    def _alternating(self, build: Callable[[bool], Executable]) -> AlternatingPrograms:
        others, last = build(False), build(True)
        assert isinstance(others, NativeExecutable) and isinstance(last, NativeExecutable), (
            "no host steps"
        )
        kind = FusedUpdate if self._update is None else SeparateUpdate
        return kind(others, last, COUNTER, self.period)

    def _parallel(self, backend: str, threads: int, replicas: int) -> ParallelCopies:
        if self._update is None:
            raise UnsupportedError(
                "the update of this program cannot be separated from its micro-batches",
                "replicas",
                "train without replicas",
            )
        others, last = (self._build_program(backend, threads, last) for last in (False, True))
        assert isinstance(others, NativeExecutable) and isinstance(last, NativeExecutable), (
            "no host steps"
        )
        own, weights = variables_of_micro_batches(self.module), self.compilation.weights
        twins = [others.twin(weights, own) for _ in range(replicas - 1)]
        return ParallelCopies(others, last, self.period, twins, own)

    @cached_property
    def _update(self) -> ModuleOp | None:
        """The update as a program of its own; None if it cannot be separated."""
        return separate_update(self.module, self.compilation.weights)

    def build_forward(
        self, backend: str, threads: int, results: Collection[str], trained: Executable
    ) -> Executable:
        """Builds a program of these results alone, with the variables of the training program."""
        request = self._request(backend, threads)
        graph = only_graph(request.module)
        for update in [op for op in graph.updates() if op.variable.text != SEED]:
            Rewriter.erase_op(update)
        set_outputs(graph, {name: one for name, one in graph.outputs.items() if name in results})
        made = request.executable()
        if isinstance(trained, AlternatingPrograms):
            assert isinstance(made, NativeExecutable), "both programs are of one backend"
            trained.lend(made)
        else:
            made.share(trained)
        return made

    def _build_program(
        self, backend: str, threads: int, last: bool, backlog: Backlog | None = None
    ) -> Executable:
        """
        The program of micro-batches, of the last micro-batch with its update, or of the update.
        """
        others, update = self.requests(backend, threads)
        if last and update is None:
            others = self._request(backend, threads)
            specialize_micro_batch(others.module, others.compilation.weights, last=True)
        chosen = update if last and update is not None else others
        return replace(chosen, backlog=backlog).executable()

    def requests(self, backend: str, threads: int) -> tuple[BuildRequest, BuildRequest | None]:
        """The requests of a micro-batch and of the update; None if it cannot be separated."""
        others = self._request(backend, threads)
        specialize_micro_batch(others.module, others.compilation.weights, last=False)
        if self._update is None:
            return others, None
        return others, replace(others, module=self._update.clone())

    def lowered(self, threads: int) -> BuildRequest:
        """The lowered kernels, as `build` compiles them for the default backend."""
        request = self._request(DEFAULT, threads)
        if counts_micro_batches(request.module):
            specialize_micro_batch(request.module, request.compilation.weights, last=True)
        options = for_this_machine(request.options, threads)
        lower(request.module, request.compilation, options)
        return request

    @property
    def peak_bytes(self) -> int:
        """
        Peak bytes of live tensors when operations run in program order.

        Variables and constants are always live; tensors in the body of an operation are all live
        while it runs.
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
        """The exchanges of this rank in program order; all ranks must have the same."""
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
    """
    The bytes that each operation frees: operands it reads last, and results that nothing reads.
    """
    freed: Counter[Operation] = Counter()
    read: set[SSAValue] = set()
    for op in reversed(block.ops):
        operands = {operand for inner in op.walk() for operand in inner.operands}
        last = [value for value in (*operands, *op.results) if value not in read]
        read.update(last)
        freed[op] = sum(_bytes(value) for value in last if _is_computed_in(value, block))
    return freed


def _is_computed_in(value: SSAValue, block: Block) -> bool:
    """Whether an operation of a block computes a value at run time."""
    owner = value.owner
    if not isinstance(owner, Operation) or isinstance(owner, ConstantOp | VariableOp):
        return False
    return owner.parent is block


def _built(later: Deferred) -> Executable | None:
    """The tuned program of a quick one; None if the cache had it."""
    return later.builds[0]() if later.builds else None
