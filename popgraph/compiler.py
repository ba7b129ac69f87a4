"""The compiler: from a model to its IR, down the levels, and to an executable program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError as IRParseError
from xdsl.utils.exceptions import VerifyException

from popgraph.backends.base import Executable, check_dtype
from popgraph.backends.c.build.host import host_machine
from popgraph.backends.c.build_program import build as build_c
from popgraph.backends.c.cache.program_key import program_key, sources
from popgraph.backends.c.cache.schedule_file import measured
from popgraph.backends.c.run.executable import build_again, check_threads
from popgraph.backends.c.run.warm_start import (
    KnownCall,
    KnownModel,
    note_call,
    remember,
    remember_open,
)
from popgraph.backends.reference import ReferenceExecutable, can_evaluate, signature
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.builder import pgraph
from popgraph.builder.onnx.read import import_model
from popgraph.builder.popart.builder import Builder
from popgraph.dialects.element_types import from_ir
from popgraph.dialects.levels import ONNX, PROGRAM, check_level, level_of
from popgraph.dialects.onnx.containers import input_types, model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.types import (
    MapType,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    describe,
    static_shape,
)
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.hosted import HostedExecutable, HostedModel, Role
from popgraph.hosted.part import Maker
from popgraph.open_model import Call, Interface, OpenModel, Undecided, recalled
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.observer import Observer
from popgraph.passes.onnx.infer_shapes import infer_shapes, specialise
from popgraph.passes.onnx.overridable import demand, overridable
from popgraph.passes.onnx.partition import host_nodes
from popgraph.passes.onnx.structural_inputs import branching_inputs, structural_inputs
from popgraph.passes.options import Options
from popgraph.passes.pipeline import current, planned
from popgraph.passes.reproducer import note_failure
from popgraph.runner import Overriding, Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import (
    ErrorGroup,
    ModelError,
    NeedsHostError,
    ParseError,
    PassError,
    PopgraphError,
    UnsupportedError,
    fitting_memory,
)
from popgraph.support.files import State, changed, is_unchanged
from popgraph.support.garbage import without_collection
from popgraph.support.index_checks import ERROR
from popgraph.support.locks import Lock
from popgraph.support.nesting import deepest
from popgraph.support.texts import read_text

Model: TypeAlias = Any
"""A path (.onnx, .pgraph, .mlir), ONNX bytes, a ModelProto, a Builder or an IR module."""

STREAMS_OF_A_SEGMENT = 1 << 20
"""More than a part of a model has nodes that draw."""

LOWERING = Lock()
"""Held while passes run: implicit builders of xDSL, in two threads at once, insert twice."""

DEEPEST = 80
"""Levels of IR text: who reads, verifies and prints it recurses over them."""


def load(
    model: Model, *, mapped: bool = False, search: Iterable[str] = ()
) -> tuple[ModuleOp, Compilation]:
    """
    The model as a module of the level it was written at, and the weights that belong to it.

    `search` are folders in which a `.pgraph` text looks for what it imports.
    If `mapped`, weights may be parts of the model's file, to be used before anybody writes to it.
    """
    compilation = Compilation()
    match model:
        case ModuleOp():
            return model.clone(), compilation
        case Builder():
            return model.module(), Compilation(model.weights)
        case str() | Path() if Path(model).suffix == ".pgraph":
            document = pgraph.load(Path(model), search)
            return document.module, Compilation(document.weights)
        case str() | Path() if Path(model).suffix == ".mlir":
            return parse_ir(read_text(Path(model)), compilation, str(model)), compilation
        case _:
            return import_model(model, compilation.weights, mapped=mapped), compilation


def to_pgraph(model: Model, *, whole: bool = True) -> pgraph.Listing:
    """
    Any model as `.pgraph` text; a notebook shows it in colours.

    Unless it is `whole`, large weights are only named: such a text is there to be looked at.
    """
    module, compilation = load(model)
    if level_of(module) != "onnx":
        raise PassError(
            f"a module of the {level_of(module)} level has no .pgraph text",
            hint="only models as they were written have one",
        )
    return pgraph.Listing.of(module, compilation.weights, whole=whole)


def parse_ir(text: str, compilation: Compilation, name: str = "<text>") -> ModuleOp:
    """IR text of any level, verified."""
    depth, line = deepest(text)
    if depth > DEEPEST:
        raise _too_deep(f"{name}, line {line}")
    try:
        module = Parser(compilation, text, name).parse_module()
        module.verify()
    except RecursionError as error:
        raise _too_deep(name) from error
    except (IRParseError, VerifyException, ValueError) as error:
        raise ParseError(f"not valid IR: {error}", name) from error
    return module


def _too_deep(where: str) -> ParseError:
    return ParseError(
        f"this IR is nested more than {DEEPEST} levels deep",
        where,
        "regions, attributes, types and affine expressions count together: take them apart",
    )


def verify(module: ModuleOp) -> None:
    """`ModelError` unless every operation keeps the rules of its dialect."""
    try:
        module.verify()
    except (VerifyException, ValueError) as error:
        raise ModelError(
            f"the model breaks a rule of its operators: {_cause_of(error)}",
            _place_of(module),
            "`popgraph print --at onnx` shows what was read",
        ) from error


def _cause_of(error: BaseException) -> str:
    """What the innermost verifier says: those around it repeat it, with the whole text."""
    while isinstance(error.__cause__, VerifyException):
        error = error.__cause__
    return str(error).strip().splitlines()[-1]


def _place_of(module: ModuleOp) -> str:
    """The first operation that does not verify by itself, as messages name it."""
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except (VerifyException, ValueError):
            return op.where() if isinstance(op, OnnxOp) else op.name
    return ""


def same_meaning(step: Pass, before: ModuleOp, after: ModuleOp, weights: WeightStore) -> None:
    """What POPGRAPH_CHECK runs after every pass."""
    if step.KEEPS_MEANING and can_evaluate(before):
        assert_same_meaning(before, after, weights, tolerance=step.TOLERANCE)


def lower(
    module: ModuleOp,
    compilation: Compilation,
    options: Options | None = None,
    *,
    level: str = PROGRAM,
    until: str | None = None,
    observer: Observer | None = None,
) -> ModuleOp:
    """
    Takes `module`, which must verify, in place, from its own level down to the end of `level`.

    `until` names the last pass to run instead. The environment's debug settings (see
    `support/debug.py`) apply unless an `observer` is given.
    """
    verify(module)
    if level_of(module) == ONNX:
        weights_by_name(model_of(module).graph)  # as long as all of them are there
    observer = observer or Observer.from_environment(same_meaning)
    until = until or observer.stop_after
    until = None if until is None else current(until)
    steps = list(planned(options or Options(), level_of(module), level))
    if until is not None and until not in {made.name for _, made in steps}:
        raise PassError(f"no pass {until!r} runs here", hint="`popgraph passes` lists them")
    original = module.clone()
    try:
        with LOWERING:
            for step, made in steps:
                if step.level == ONNX and step.to is not None:
                    check_static_form(module)
                with observer.watching(made, module, compilation.weights):
                    made.run(compilation, module)
                if step.to is not None:
                    check_level(module, step.to)
                if made.name == until:
                    break
    except Exception as error:
        passes = [made for _, made in steps]
        note_failure(error, original, passes, compilation, observer.checks)
        if isinstance(error, NeedsHostError):
            error.model = original
        raise
    return module


def check_static_form(module: ModuleOp) -> None:
    """An error for a model of which Python computes some nodes: it has no form further down."""
    for op in host_nodes(module):
        raise UnsupportedError(
            f"{op.op_type} is computed by Python and has no form below the onnx level",
            op.where(),
            "`popgraph run` and popgraph.compile run such models, `popgraph print` and "
            "`popgraph profile` show their steps",
        )


def check_backend(backend: str, threads: int) -> None:
    """An error for what can run nothing, before anything is compiled for it."""
    if backend not in ("c", "reference"):
        raise PopgraphError(f"no backend {backend!r}", hint="there are 'c' and 'reference'")
    check_threads(threads)


def build(
    module: ModuleOp,
    compilation: Compilation,
    options: Options | None = None,
    *,
    backend: str = "c",
    threads: int = 1,
) -> Executable:
    """
    The program of a module whose shapes are all known.

    It is taken from the cache of programs, else the module is lowered in place.
    """
    return BuildRequest(module, compilation, options or Options(), backend, threads).executable()


def for_this_machine(options: Options, threads: int = 1) -> Options:
    """With what passes are to know of the machine that this process runs on."""
    return replace(
        options,
        machine=options.machine or host_machine(),
        threads=threads,
        measured=measured() if options.measured is None else options.measured,
    )


Make: TypeAlias = Callable[[Call], Executable]
Kept: TypeAlias = Callable[[Interface, Make], Make]
"""What remembers the programs that are made of an open model."""


def unkept(interface: Interface, make: Make) -> Make:
    """Remembers nothing."""
    return make


@dataclass(frozen=True)
class BuildRequest:
    """What is to be built: a module and its weights, how, and for what to run."""

    module: ModuleOp
    compilation: Compilation
    options: Options
    backend: str
    threads: int
    role: Role = field(default_factory=Role)
    """What the module is to a model of which Python computes some nodes."""
    numbers: Iterator[int] = field(default_factory=count)
    """Of the pieces of such a model."""

    def __post_init__(self) -> None:
        check_backend(self.backend, self.threads)

    def runner(self, kept: Kept = unkept) -> Runner:
        """The module as something to call; `kept` sees the programs of an open one."""
        if level_of(self.module) == ONNX and host_nodes(self.module):
            return Runner(self.steps())
        overriding = self._overriding()
        interface = interface_of(self.module, self.compilation.weights, self.role.known)
        if interface is not None or self.backend == "reference":
            self.compilation.weights.own()
        if interface is None:
            return Runner(self._program(), overriding)
        verify(self.module)
        _check_tensors(self.module)
        return Runner(OpenModel(interface, kept(interface, Programs(self))), overriding)

    @property
    def overridable(self) -> tuple[str, ...]:
        """The initializers for which calls may bring other values; variables are written."""
        is_onnx = level_of(self.module) == ONNX
        if not is_onnx or self.options.training is not None or self.options.variables:
            return ()
        return overridable(self.module)

    def _overriding(self) -> Overriding | None:
        """What runs calls with other values for initializers."""
        names = self.overridable
        return Overriding(names, self._demanding(self.module.clone())) if names else None

    def _demanding(self, module: ModuleOp) -> Callable[[frozenset[str]], Runner]:
        """Makes a model whose initializers of some names are inputs."""
        weights = self.compilation.weights
        files = {str(path): state for path, state in weights.files.items()}

        def make(names: frozenset[str]) -> Runner:
            if not is_unchanged(files):
                raise changed(files)
            weights.own()
            compilation, copy = Compilation(WeightStore(weights)), module.clone()
            demand(copy, names)
            return replace(self, module=copy, compilation=compilation).runner()

        return make

    def _program(self) -> Executable | HostedModel:
        """The program of a module whose shapes are all known, or the steps, if it is none."""
        try:
            return self.executable()
        except NeedsHostError as error:
            if not self.splits:
                raise
            return self.whole(error).steps(error)

    def whole(self, error: NeedsHostError) -> BuildRequest:
        """The same of the module as it was before lowering found that it needs the host."""
        assert isinstance(error.model, ModuleOp), "lowering keeps what it began with"
        return replace(self, module=error.model)

    @property
    def splits(self) -> bool:
        """Whether Python may compute nodes that turn out to have no static form."""
        chosen = self.options
        fixed = chosen.training or chosen.variables or chosen.extra_outputs
        return self.role.whole and level_of(self.module) == ONNX and not fixed

    def steps(self, reason: NeedsHostError | None = None) -> HostedModel:
        """Segments that are compiled, and nodes that Python computes; the module is changed."""
        if self.options.training is not None:
            raise UnsupportedError(
                "a model cannot be trained through what only Python computes",
                host_nodes(self.module)[0].where(),
                "train the part of the model before it or behind it",
            )
        verify(self.module)
        weights = self.compilation.weights
        weights.own()
        maker = Maker(self._start, self._steps_of, self.numbers, self.role.repeated)
        return HostedModel(self.module, weights, maker, reason)

    def _start(self, module: ModuleOp, role: Role) -> Runner:
        return self.piece(module, role).runner()

    def _steps_of(self, module: ModuleOp, role: Role, reason: NeedsHostError | None) -> Runner:
        return Runner(self.piece(module.clone(), role).steps(reason))

    def piece(self, module: ModuleOp, role: Role) -> BuildRequest:
        """A part of the model; each draws random numbers of its own."""
        compilation = Compilation(WeightStore(self.compilation.weights))
        options = replace(self.options, first_stream=role.number * STREAMS_OF_A_SEGMENT)
        return replace(self, module=module, compilation=compilation, options=options, role=role)

    def copied(self) -> BuildRequest:
        """The same of a copy of the module: what lowers that leaves this one as it is."""
        compilation = Compilation(WeightStore(self.compilation.weights))
        return replace(self, module=self.module.clone(), compilation=compilation)

    def for_call(self, inputs: Mapping[str, Array]) -> tuple[BuildRequest, Mapping[str, Array]]:
        """The same for the shapes and the structural values of a call, and its other inputs."""
        interface = interface_of(self.module, self.compilation.weights, self.role.known)
        if interface is None:
            return self, inputs
        call = interface.call(inputs)
        rest = {name: array for name, array in inputs.items() if name not in call.values}
        return self.specialised(call), rest

    def specialised(self, call: Call) -> BuildRequest:
        """The same of a copy of the module, for the shapes and the structural values of a call."""
        types = signature(self.module)
        for name, value in call.values.items():
            check_dtype(name, value, from_ir(types[name].element_type))
        module = self.module.clone()
        compilation = Compilation(WeightStore(self.compilation.weights))
        specialise(module, call.shapes, compilation.weights, call.values)
        if call.choices:
            decisive = structural_inputs(module, compilation.weights)
            if names := tuple(name for name in decisive if name in call.choices):
                raise Undecided(names)
        return replace(self, module=module, compilation=compilation)

    def executable(self) -> Executable:
        """The program of a module whose shapes are all known; the module may be lowered."""
        with fitting_memory():
            return self._reference() if self.backend == "reference" else self._compiled()

    def _reference(self) -> Executable:
        options = replace(self.options, indices=self.options.indices or ERROR)
        lower(self.module, self.compilation, options, level="graphcore")
        return ReferenceExecutable(self.module, self.compilation.weights)

    def _compiled(self) -> Executable:
        options = for_this_machine(self.options, self.threads)
        weights = self.compilation.weights
        key = program_key(self.module, [made for _, made in planned(options)])
        found = None if key is None else build_again(key, weights, self.threads)
        if found is not None:
            return found
        with without_collection():
            lower(self.module, self.compilation, options)
            return build_c(self.module, weights, threads=self.threads, save_as=key)


class Programs:
    """
    Makes the programs of an open model.

    Calls for which there is none share the steps of the model, whose segments are open in turn.
    """

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self._steps: HostedModel | None = None

    def __call__(self, call: Call) -> Executable:
        """The program for what a call brings; the module stays as it is."""
        try:
            return self._made(call)
        except Undecided:
            raise
        except PopgraphError as error:
            raise _with_values(error, call) from error

    def _made(self, call: Call) -> Executable:
        request = self._request
        try:
            return request.specialised(call).executable()
        except NeedsHostError as error:
            if not request.splits:
                raise
            if self._steps is None:
                self._steps = replace(request, module=request.module.clone()).steps(error)
        types = {name: from_ir(one.element_type) for name, one in signature(request.module).items()}
        shapes = {name: shape for name, shape in call.shapes.items() if name not in call.values}
        inputs = {name: (types[name], shape) for name, shape in shapes.items()}
        return HostedExecutable(self._steps, inputs, call.values)


def interface_of(
    module: ModuleOp, weights: WeightStore, known: Iterable[str] = ()
) -> Interface | None:
    """
    What an open model is called with; None where all shapes and structures are known.

    `known` are structural inputs that operators do not ask for.
    """
    if level_of(module) != "onnx":
        return None
    types = input_types(module)
    is_static = all(static_shape(type_) is not None for type_ in types.values())
    if is_static and any(op.op_type == "If" for op in module.walk() if isinstance(op, OnnxOp)):
        infer_shapes(module, weights)  # What a reader believes of a branch need not be so.
    found = {*structural_inputs(module, weights), *known}
    structural = tuple(name for name in types if name in found)
    if is_static and not structural:
        return None
    return Interface(tuple(types), structural, branching_inputs(module, weights))


def _with_values(error: PopgraphError, call: Call) -> PopgraphError:
    """The error, with the values of the inputs that decided the structure where it was found."""
    if not call.values or isinstance(error, ErrorGroup):
        return error
    values = [f"input {name!r} = {array.tolist()}" for name, array in call.values.items()]
    where = ", ".join(values)
    made = type(error)(error.what, f"{error.where}, with {where}".removeprefix(", "), error.hint)
    if isinstance(error, NeedsHostError) and isinstance(made, NeedsHostError):
        made.inner, made.node = error.inner, error.node
    return made


def _check_tensors(module: ModuleOp) -> None:
    """An error for inputs that no array can be, before anybody gives one."""
    for name, type_ in input_types(module).items():
        if isinstance(type_, SeqType | OptType | MapType | SparseType | OpaqueType):
            raise UnsupportedError(
                f"an input of type {describe(type_)} is not supported", f"input {name!r}"
            )


def runner(
    module: ModuleOp,
    compilation: Compilation,
    options: Options,
    backend: str,
    threads: int,
) -> Runner:
    """A loaded model as something to call; `module` is lowered in place."""
    return BuildRequest(module, compilation, options, backend, threads).runner()


def compile(
    model: Model,
    *,
    threads: int = 1,
    backend: str = "c",
    options: Options | None = None,
    indices: str | None = None,
) -> Runner:
    """What `popgraph.compile` does with a model that it does not remember (see `start.py`)."""
    check_backend(backend, threads)
    chosen = options or Options()
    chosen = replace(chosen, indices=indices or chosen.indices)
    with without_collection():
        module, compilation = load(model, mapped=True, search=chosen.search)
    files = compilation.weights.files

    def kept(interface: Interface, make: Make) -> Make:
        known = remember_open(
            model,
            options,
            threads,
            files,
            indices,
            asdict(interface),
            request.overridable,
        )
        return Remembering(model, known, files, make)

    request = BuildRequest(module, compilation, chosen, backend, threads)
    made = request.runner(kept if backend == "c" else unkept)
    names = made.overriding.names if made.overriding else ()
    remember(model, options, threads, made.static, files, indices, names)
    return made


def admits(model: Model) -> bool:
    """
    Whether a model can be compiled, as far as that is known before it has inputs.

    A model with unknown dimensions is looked at when these are known.
    """
    module, compilation = load(model)
    try:
        verify(module)
        if not host_nodes(module) and interface_of(module, compilation.weights) is None:
            lower(module, compilation, level="graphcore")
    except UnsupportedError as error:
        return isinstance(error, NeedsHostError)
    return True


def note_program(
    model: Model, files: Mapping[Path, State], call: Call, program: Executable, threads: int
) -> None:
    """Notes for `popgraph print` that the cache has a program for a call of a model's file."""
    note_call(model, files, sources(), KnownCall(call.shapes, call.values, threads), program)


@dataclass(frozen=True)
class Remembering:
    """Makes the programs of an open model, and keeps the way to them for another process."""

    model: Model
    known: KnownModel
    files: Mapping[Path, State]
    make: Make

    def __call__(self, call: Call) -> Executable:
        """The program for a call."""
        program = recalled(self.known, call)
        if program is not None:
            return program
        try:
            made = self.make(call)
        except Undecided as error:
            self.known.note_undecided(call.signature, error.names)
            raise
        self.known.remember(call.signature, made)
        note_program(self.model, self.files, call, made, self.known.threads)
        return made
