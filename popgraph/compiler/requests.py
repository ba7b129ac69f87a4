"""Build requests: a module with its options, and how it becomes a runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp, TensorType, UnrankedTensorType

from popgraph.backends.base import Executable
from popgraph.backends.interface import Backend, Case, Key, check_threads
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.background import LEAST_OPERATIONS, Backlog
from popgraph.compiler.container_models import ContainerModel, Lengths
from popgraph.compiler.generalize import (
    GRAPHCORE,
    SMALL,
    STRUCTURED,
    between,
    check_agreement,
    probes_of,
    prove_generality,
)
from popgraph.compiler.interfaces import check_tensors, interface_of
from popgraph.compiler.lowering import lower, settle_nodes, verify
from popgraph.dialects.element_types import from_ir
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.containers import input_types, model_of
from popgraph.dialects.onnx.open_containers import (
    names_clash,
    open_containers,
    opened_inputs,
    opened_outputs,
)
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.sizes import set_sizes, sizes_of
from popgraph.hosted import HostedExecutable, HostedModel, Role
from popgraph.hosted.part import RunnerFactory
from popgraph.open_model import Call, Interface, OpenModel, Undecided
from popgraph.operators.record import load_operators
from popgraph.passes.base import LOWERING, Compilation
from popgraph.passes.goals import quick
from popgraph.passes.observer import Observer
from popgraph.passes.onnx.diagnose import unknown_operators
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.passes.onnx.overridable import demand, overridable
from popgraph.passes.onnx.partition import host_nodes
from popgraph.passes.onnx.size_decisions import sizes_decide
from popgraph.passes.onnx.structural_inputs import structural_inputs
from popgraph.passes.options import SPEED, Options
from popgraph.passes.pipeline import planned
from popgraph.runner import Overriding, Runner
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import (
    BackendError,
    ErrorGroup,
    NeedsHostError,
    PopgraphError,
    UnsupportedError,
    combined,
    reporting_out_of_memory,
)
from popgraph.support.files import changed, is_unchanged
from popgraph.support.forked import Child, can_fork
from popgraph.support.garbage import without_collection
from popgraph.support.inputs import fitted
from popgraph.support.memo import cached_property
from popgraph.support.sizes import with_sizes

STREAMS_PER_SEGMENT = 1 << 20
"""An upper bound of the nodes in a segment that draw random numbers."""


def check_backend(backend: str, threads: int) -> None:
    """Rejects unknown backends and invalid thread counts before anything is compiled."""
    backend_named(backend)
    check_threads(threads)


def for_this_machine(options: Options, threads: int = 1, backend: str = DEFAULT) -> Options:
    """Adds the properties of this machine that passes need."""
    made = backend_named(backend)
    return replace(
        options,
        machine=options.machine or made.machine(),
        threads=threads,
        measured=made.measured() if options.measured is None else options.measured,
    )


ProgramBuilder: TypeAlias = Callable[[Call], Executable]
BuilderWrapper: TypeAlias = Callable[[Interface, ProgramBuilder], ProgramBuilder]
"""Wraps a builder of programs for an open model so that its programs are stored."""


def unwrapped(interface: Interface, make: ProgramBuilder) -> ProgramBuilder:
    """Stores nothing."""
    return make


@dataclass(frozen=True)
class Soon:
    """Marks the keys of quick programs, which the C compiler optimizes less."""


@dataclass(frozen=True)
class BuildRequest:
    """A module and its weights, options, backend and threads."""

    module: ModuleOp
    compilation: Compilation
    options: Options
    backend: str
    threads: int
    role: Role = field(default_factory=Role)
    """The role of the module in a model with host steps."""
    numbers: Iterator[int] = field(default_factory=count)
    """Numbers of the parts of such a model."""
    settled: bool = False
    """Whether `settle_nodes` has already run on the module."""
    case: Case | None = None
    """The open module that was specialised to this one, as part of the cache key."""
    backlog: Backlog | None = None
    """Queue of quick programs until tuned ones replace them; None: programs are tuned at once."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Upper bounds of open dimensions, up to which programs are valid."""
    probe: Callable[[Mapping[str, int]], BuildRequest] | None = None
    """Builds the same request for other sizes, if one program is to serve many."""

    def __post_init__(self) -> None:
        check_backend(self.backend, self.threads)

    def runner(self, wrapper: BuilderWrapper = unwrapped) -> Runner:
        """The runner of the module; `wrapper` wraps the builder of an open module's programs."""
        load_operators(self.module)
        if self._holds_containers:
            return self._container_runner()
        return self._tensor_runner(wrapper)

    def _tensor_runner(self, wrapper: BuilderWrapper = unwrapped) -> Runner:
        """The runner of a module without containers."""
        if level_of(self.module) == ONNX and not self.settled:
            settle_nodes(self.module, self.compilation, self.options)
            return replace(self, settled=True)._tensor_runner(wrapper)
        if self.settled and self._hosted():
            return Runner(self.steps(), backlog=self.backlog)
        overriding = self._overriding()
        interface = interface_of(self.module, self.compilation.weights, self.role.known)
        if interface is not None or not self._backend.is_native:
            self.compilation.weights.own()
        if interface is None:
            Interface((), ()).check_bounds(self.bounds)
            return Runner(self._program(), overriding, backlog=self.backlog)
        verify(self.module)
        check_tensors(self.module)
        made = OpenModel(interface, wrapper(interface, OpenModelPrograms(self)), self.bounds)
        return Runner(made, overriding, backlog=self.backlog)

    def _hosted(self) -> list[OnnxOp]:
        """The nodes that split the model into several programs."""
        return host_nodes(self.module, trained=self.options.training is not None)

    @property
    def _holds_containers(self) -> bool:
        """Whether inputs or outputs are sequences or optionals of tensors."""
        if level_of(self.module) != ONNX or self.options.training is not None:
            return False
        return bool(opened_inputs(self.module) or opened_outputs(self.module))

    def _container_runner(self) -> Runner:
        """A runner that converts sequences and optionals, and runs models of tensors."""
        module, graph = self.module.clone(), model_of(self.module).graph
        self.compilation.weights.own()
        inputs, outputs = opened_inputs(module), opened_outputs(module)

        def make(lengths: Lengths) -> Runner:
            request = replace(self, module=module).copy()
            # No pass, as below: lengths and sizes of a call, with which its pipeline begins.
            open_containers(request.module, lengths)
            return request._tensor_runner()

        def otherwise() -> Runner:
            return Runner(replace(self, module=module).copy().steps(in_python=True))

        names = graph.input_names, graph.output_names
        if names_clash([*inputs, *outputs], [*graph.input_names, *graph.output_names]):
            return otherwise()
        made = ContainerModel(inputs, outputs, *names, make, otherwise)
        runner = Runner(made, backlog=self.backlog)
        if inputs:
            verify(module)
            self._refuse_unknown()
        else:
            runner.open = made.single.open
        return runner

    def _refuse_unknown(self) -> None:
        """Raises the errors of nodes with unknown operators."""
        if self.role.whole:
            refused = unknown_operators(self.module, self.compilation.weights)
            if refused:
                raise combined(refused)

    @property
    def runs_to_sizes(self) -> bool:
        """Whether one program may serve many sizes."""
        is_quick = self.backlog is not None and not self.backlog.is_automatic
        return self._backend.runs_to_sizes and not is_quick

    @property
    def _begins_quickly(self) -> bool:
        """Whether a quick program is built before the tuned one."""
        if self.backlog is None or not self._backend.is_native:
            return False
        if not self.backlog.is_automatic:
            return True
        # A call that has a range of sizes is not the first one.
        return self.probe is None and sum(1 for _ in self.module.walk()) >= LEAST_OPERATIONS

    @property
    def overridable(self) -> tuple[str, ...]:
        """The initializers that calls may override; variables are written instead."""
        is_onnx = level_of(self.module) == ONNX
        if not is_onnx or self.options.training is not None or self.options.variables:
            return ()
        return overridable(self.module)

    def _overriding(self) -> Overriding | None:
        """The runner of calls that override initializers."""
        names = self.overridable
        return Overriding(names, self._with_inputs(self.module.clone())) if names else None

    def _with_inputs(self, module: ModuleOp) -> Callable[[frozenset[str]], Runner]:
        """Builds models in which some initializers are inputs."""
        weights = self.compilation.weights
        files = {str(path): state for path, state in weights.files.items()}

        def make(names: frozenset[str]) -> Runner:
            if not is_unchanged(files):
                raise changed(files)
            weights.own()
            compilation, copy = Compilation(WeightStore(weights)), module.clone()
            demand(copy, names)  # No pass: a call decides which, not the options.
            made = replace(self, module=copy, compilation=compilation, settled=False, case=None)
            return made.runner()

        return make

    def _program(self) -> Executable | HostedModel:
        """The program of a module with static shapes, or its steps if it needs the host."""
        try:
            return self.executable()
        except NeedsHostError as error:
            if not self.may_split:
                raise
            return self.before_lowering(error).steps(error)

    def before_lowering(self, error: NeedsHostError) -> BuildRequest:
        """The request for the module as it was before lowering found that it needs the host."""
        assert isinstance(error.model, ModuleOp), "lowering keeps the original module"
        return replace(self, module=error.model, case=None)

    @property
    def may_split(self) -> bool:
        """Whether nodes without static form may run in Python."""
        return self.role.whole and level_of(self.module) == ONNX and not self.options.names_tensors

    def steps(
        self, reason: NeedsHostError | None = None, *, in_python: bool = False
    ) -> HostedModel:
        """
        Compiled segments, and nodes that Python computes; modifies the module.

        With `in_python`, sequences and optionals of unknown length stay in Python.
        """
        if self.options.training is not None:
            raise UnsupportedError(
                "a model cannot be trained through what only Python computes",
                self._hosted()[0].where(),
                "train the part of the model before or after it",
            )
        verify(self.module)
        weights = self.compilation.weights
        self._refuse_unknown()
        weights.own()
        factory = RunnerFactory(self._start, self._start_steps, self.numbers, self.role.repeated)
        return HostedModel(self.module, weights, factory, reason, in_python=in_python)

    def _start(self, module: ModuleOp, role: Role) -> Runner:
        return self.for_part(module, role).runner()

    def _start_steps(self, module: ModuleOp, role: Role, reason: NeedsHostError | None) -> Runner:
        return Runner(self.for_part(module.clone(), role).steps(reason))

    def for_part(self, module: ModuleOp, role: Role) -> BuildRequest:
        """The request for a part of the model, with random streams of its own."""
        compilation = Compilation(WeightStore(self.compilation.weights))
        options = replace(self.options, first_stream=role.number * STREAMS_PER_SEGMENT)
        made = replace(self, module=module, compilation=compilation, options=options, role=role)
        return replace(made, settled=False, case=None)

    def copy(self) -> BuildRequest:
        """The request for a copy of the module, which may then be lowered."""
        compilation = Compilation(WeightStore(self.compilation.weights))
        return replace(self, module=self.module.clone(), compilation=compilation)

    def for_call(self, inputs: Mapping[str, Array]) -> tuple[BuildRequest, Mapping[str, Array]]:
        """The request for the shapes and structural values of a call, and its remaining inputs."""
        interface = interface_of(self.module, self.compilation.weights, self.role.known)
        if interface is None:
            return self, inputs
        call = interface.call(inputs)
        rest = {name: array for name, array in inputs.items() if name not in call.values}
        return self.specialise(call), rest

    def specialise(self, call: Call) -> BuildRequest:
        """The request for a copy of the module, specialised to the shapes and values of a call."""
        types = _element_types(self.module)
        values = {name: fitted(name, value, types[name]) for name, value in call.values.items()}
        module = self.module.clone()
        compilation = Compilation(WeightStore(self.compilation.weights))
        bounds = {size.name: size.bound for size in call.sizes}
        shapes = with_sizes(call.shapes, call.sizes, bounds)
        # No pass: the pipeline of a program begins with the module that this makes for a call.
        specialise(module, shapes, compilation.weights, values)
        if call.choices:
            decisive = structural_inputs(module, compilation.weights)
            if names := tuple(name for name in decisive if name in call.choices):
                raise Undecided(names)
        given = replace(call, shapes=shapes).signature
        case = Case(lambda: self._text, repr((given, call.sizes) if call.sizes else given))
        made = replace(self, module=module, compilation=compilation, settled=False, case=case)
        if not call.sizes:
            return made
        set_sizes(module, call.sizes)

        def probe(numbers: Mapping[str, int]) -> BuildRequest:
            others = with_sizes(shapes, call.sizes, numbers)
            return self.specialise(replace(call, shapes=others, sizes=()))

        return replace(made, probe=probe)

    @cached_property
    def _text(self) -> str:
        """The text of the module before it is lowered."""
        return self._backend.spelled(self.module)

    def executable(self) -> Executable:
        """The program of a module with static shapes; the module may be lowered."""
        with reporting_out_of_memory():
            return self._executable()

    @property
    def _backend(self) -> Backend:
        return backend_named(self.backend)

    def _executable(self) -> Executable:
        options = for_this_machine(self.options, self.threads, self.backend)
        load_operators(self.module)
        steps = [made for _, made in planned(options)]
        key = self._key(steps)
        found = None if key is None else self._cached(key)
        if found is not None:
            return found
        if self.backlog is None or not self._begins_quickly:
            return self._build(options, key)
        later = self.copy()
        return self.backlog.add(
            self._quick_program(quick(options)), lambda: later._build_tuned(options, key)
        )

    def _key(self, passes: Sequence[object]) -> Key | None:
        """The key of the program that these passes produce, before the module is lowered."""
        case = self.case or Case(lambda: self._text, "")
        return self._backend.key(self.module, passes, case)

    def _quick_program(self, options: Options) -> Executable:
        """The quick program; cached, for a process that ends before the tuned one is built."""
        passes = [*(made for _, made in planned(options)), Soon()]
        key = self._key(passes)
        found = None if key is None else self._cached(key)
        made = self._build(options, key, soon=True) if found is None else found
        made.key = None  # Shortcuts from files lead to tuned programs.
        return made

    def _cached(self, key: Key, *, is_told: bool = False) -> Executable | None:
        """The cached program of a key; `is_told` suppresses its notices."""
        weights = self.compilation.weights
        return self._backend.load_cached(key, weights, self.threads, is_told=is_told)

    def _build(self, options: Options, key: Key | None, *, soon: bool = False) -> Executable:
        backend, weights = self._backend, self.compilation.weights
        is_trained = options.training is not None or options.variables
        size = weights.bytes if self.role.whole and not is_trained else 0
        with without_collection(), backend.expecting(weights, size):
            reported = len(self.compilation.notices)
            is_usual = options.optimize == SPEED and not options.soon
            own = key is not None and is_usual and not (options.passes or options.disabled)
            self.compilation.kernels = known = backend.known_kernels() if own else None
            try:
                self.lower(options)
            finally:
                self.compilation.kernels = None
            return backend.build(
                self.module,
                weights,
                threads=self.threads,
                key=key,
                notices=self.compilation.notices[reported:],
                soon=soon,
                known=known,
                consumes=self.case is not None,  # Then, it is a copy that nobody else has.
            )

    def lower(self, options: Options) -> None:
        """
        Lowers the module to the level that its backend builds from.

        UnsizedError unless one program serves all sizes of its calls.
        """
        if self.probe is not None:
            self._prove_generality(options, self.probe)
        level, settled = self._backend.level, self.settled
        lower(self.module, self.compilation, options, level=level, settled=settled)

    def _prove_generality(
        self, options: Options, probe: Callable[[Mapping[str, int]], BuildRequest]
    ) -> None:
        """Lowers the module to loops; UnsizedError unless these are the same for all sizes."""
        sizes, weights = sizes_of(self.module), self.compilation.weights
        largest = max(size.bound for size in sizes)
        more = between(largest) if sizes_decide(self.module) else ()

        def probed(numbers: Mapping[str, int]) -> BuildRequest:
            """The request at other sizes, marked as sized because passes check for sizes."""
            other = probe(numbers)
            own = [replace(size, bound=numbers[size.name]) for size in sizes]
            set_sizes(other.module, own)
            return other

        self._lower_until(GRAPHCORE, options)
        for number in (*more, *SMALL):
            try:
                other = probed({size.name: number for size in sizes})
                other._lower_until(GRAPHCORE, options)
                check_agreement(
                    self.module, weights, other.module, other.compilation.weights, number
                )
            except PopgraphError:
                if number > 1:
                    raise
                set_sizes(self.module, [replace(size, least=2) for size in sizes])
        other = probed(probes_of({size.name: size.bound for size in sizes}))
        for one in (self, other):
            one._lower_until(STRUCTURED, options)
        # No pass: it looks at two modules, and a refusal sends the call to another pipeline.
        prove_generality(self.module, weights, other.module, other.compilation.weights)

    def _lower_until(self, last: str, options: Options) -> None:
        """Lowers the module up to a pass, without an observer."""
        observer, settled = Observer(), self.settled
        lower(
            self.module,
            self.compilation,
            options,
            until=last,
            observer=observer,
            settled=settled,
        )

    def _build_tuned(self, options: Options, key: Key | None) -> Executable:
        """
        Builds the tuned program while this process continues.

        A child process builds it and passes it on through the cache: in a thread, passes would hold
        the interpreter lock. Without fork, the calling thread builds it.
        """
        if key is None or not can_fork():
            return self._build(options, key)
        try:
            child = Child(lambda: self._build(options, key), LOWERING)
        except OSError:  # There is no room for another process.
            return self._build(options, key)
        failure = child.outcome()
        if failure:
            raise BackendError(failure)
        found = self._cached(key, is_told=True)
        return self._build(options, None) if found is None else found


class OpenModelPrograms:
    """
    Builds the programs of an open model.

    Calls that need the host share the steps of the model, whose segments are open as well.
    """

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self._steps: HostedModel | None = None
        self._unsized: dict[frozenset[str], str] = {}
        """Combinations of sizes that one program cannot serve, with the reason."""

    def __call__(self, call: Call) -> Executable:
        """The program for a call; the module is not modified."""
        try:
            with without_collection():
                return self._made(call)
        except Undecided:
            raise
        except PopgraphError as error:
            raise _with_values(error, call) from error

    def _made(self, call: Call) -> Executable:
        """One program for all requested sizes, or for as many as possible."""
        reason = ""
        for sizes in call.sizings if self._request.runs_to_sizes else ():
            names = frozenset(size.name for size in sizes)
            if names and names not in self._unsized:
                try:
                    wanted = replace(call, sizes=sizes)
                    found = self._request.specialise(wanted).executable()
                    if found.serves(call.shapes) is not None:  # Some begin at 2.
                        return found
                    continue
                except Undecided:
                    raise
                except PopgraphError as error:  # The bound, or the probe, may be no legal size.
                    self._unsized[names] = f"{error.what}, {error.where}".removesuffix(", ")
            reason = reason or self._unsized.get(names, "")
        made = self._exact(replace(call, sizes=()))
        made.unsized = reason
        return made

    def _exact(self, call: Call) -> Executable:
        request = self._request
        try:
            return request.specialise(call).executable()
        except NeedsHostError as error:
            if not request.may_split:
                raise
            if self._steps is None:
                self._steps = replace(request, module=request.module.clone()).steps(error)
        types = _element_types(request.module)
        shapes = {name: shape for name, shape in call.shapes.items() if name not in call.values}
        inputs = {name: (types[name], shape) for name, shape in shapes.items()}
        return HostedExecutable(self._steps, inputs, call.values)


def _element_types(module: ModuleOp) -> dict[str, DType]:
    """The element types of array inputs; their ranks may be unknown."""
    return {
        name: from_ir(type_.element_type)
        for name, type_ in input_types(module).items()
        if isinstance(type_, TensorType | UnrankedTensorType)
    }


def _with_values(error: PopgraphError, call: Call) -> PopgraphError:
    """Adds the structural input values of the call to the location of an error."""
    if not call.values or isinstance(error, ErrorGroup):
        return error
    values = [f"input {name!r} = {array.tolist()}" for name, array in call.values.items()]
    where = ", ".join(values)
    made = type(error)(error.what, f"{error.where}, with {where}".removeprefix(", "), error.hint)
    if isinstance(error, NeedsHostError) and isinstance(made, NeedsHostError):
        made.inner, made.node = error.inner, error.node
    return made
