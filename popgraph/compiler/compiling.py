"""Compiles models that `popgraph.compile` has no shortcut for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.backends.interface import KnownCall, KnownModel, Shortcuts
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.background import Backlog, TunedListener, notify_tuned
from popgraph.compiler.descriptions import description_of
from popgraph.compiler.interfaces import interface_of
from popgraph.compiler.loading import Model, load
from popgraph.compiler.lowering import lower, verify
from popgraph.compiler.requests import BuildRequest, ProgramBuilder, check_backend
from popgraph.open_model import Call, Interface, Undecided, recalled
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.partition import host_nodes
from popgraph.passes.options import Options
from popgraph.runner import Runner
from popgraph.support.errors import (
    NeedsHostError,
    RunError,
    UnsupportedError,
)
from popgraph.support.files import State
from popgraph.support.garbage import without_collection
from popgraph.support.sizes import with_sizes


def build(
    module: ModuleOp,
    compilation: Compilation,
    options: Options | None = None,
    *,
    backend: str = DEFAULT,
    threads: int = 1,
) -> Executable:
    """
    The program of a module with static shapes.

    It comes from the cache of programs; otherwise the module is lowered in place.
    """
    return BuildRequest(module, compilation, options or Options(), backend, threads).executable()


def runner(
    module: ModuleOp,
    compilation: Compilation,
    options: Options,
    backend: str,
    threads: int,
) -> Runner:
    """A runner of a loaded model; `module` is lowered in place."""
    return BuildRequest(module, compilation, options, backend, threads).runner()


def compile(
    model: Model,
    *,
    threads: int = 1,
    backend: str = DEFAULT,
    options: Options | None = None,
    indices: str | None = None,
    backlog: Backlog | None = None,
    bounds: Mapping[str, int] | None = None,
    check: Callable[[ModuleOp, Compilation], None] | None = None,
) -> Runner:
    """
    Implements `popgraph.compile` for models without a shortcut (see `start.py`).

    With a `backlog`, quick programs run until tuned ones are built. `check` is called with the
    model once it is loaded, and may refuse it.
    """
    check_backend(backend, threads)
    shortcuts = backend_named(backend).shortcuts
    if options is not None and not isinstance(options, Options):
        raise RunError(
            f"options is a popgraph.Options, not {type(options).__name__}",
            hint="popgraph.Options(winograd=False), for example",
        )
    chosen = options or Options()
    chosen = replace(chosen, indices=indices or chosen.indices)
    with without_collection():
        module, compilation = load(model, mapped=True, search=chosen.search)
    if check is not None:
        check(module, compilation)
    files = compilation.weights.files

    description = description_of(model, module, chosen)

    def kept(interface: Interface, make: ProgramBuilder) -> ProgramBuilder:
        known = shortcuts.remember_open(
            model,
            options,
            threads,
            files,
            indices,
            asdict(interface),
            request.overridable,
        )
        return ShortcutRecorder(model, known, files, make, shortcuts)

    request = BuildRequest(
        module, compilation, chosen, backend, threads, backlog=backlog, bounds=dict(bounds or {})
    )
    with without_collection():
        made = request.runner(kept)
    made.describe = lambda: description
    names = made.overriding.names if made.overriding else ()

    def keep(program: Executable) -> None:
        shortcuts.remember(model, options, threads, program, files, indices, names)

    notify_tuned(made.static, unless_folder_changed(keep, shortcuts))
    return made


def admits(model: Model) -> bool:
    """
    Whether a model can be compiled, as far as can be determined without inputs.

    A model with unknown dimensions is checked only when they are known.
    """
    module, compilation = load(model)
    try:
        verify(module)
        if not host_nodes(module) and interface_of(module, compilation.weights) is None:
            lower(module, compilation, level="graphcore")
    except UnsupportedError as error:
        return isinstance(error, NeedsHostError)
    return True


def unless_folder_changed(keep: TunedListener, shortcuts: Shortcuts) -> TunedListener:
    """Drops a program if the process has changed its folder by the time the program is tuned."""
    before = shortcuts.standing()

    def kept(program: Executable) -> None:
        if shortcuts.standing() == before:
            keep(program)

    return kept


@dataclass(frozen=True)
class ShortcutRecorder:
    """Builds the programs of an open model, and stores shortcuts to them for other processes."""

    model: Model
    known: KnownModel
    files: Mapping[Path, State]
    make: ProgramBuilder
    shortcuts: Shortcuts

    def __call__(self, call: Call) -> Executable:
        program = recalled(self.known, call)
        if program is not None:
            return program
        try:
            made = self.make(call)
        except Undecided as error:
            self.known.note_structural(call.signature, error.names)
            raise
        notify_tuned(made, unless_folder_changed(partial(self._keep, call), self.shortcuts))
        return made

    def _keep(self, call: Call, program: Executable) -> None:
        bounds = {size.name: size.bound for size in program.sizes}
        made = tuple(size for size in call.sizes if size.name in bounds)
        self.known.remember(call.key(made), program)
        shapes = with_sizes(call.shapes, program.sizes, bounds)
        noted = KnownCall(shapes, call.values, self.known.threads, program.sizes)
        self.shortcuts.note_call(self.model, self.files, noted, program)
