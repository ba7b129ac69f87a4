"""The entry point `popgraph.compile`, which starts cached programs without the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from popgraph.backends.base import Executable
from popgraph.backends.interface import KnownModel, KnownProgram
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.background import Backlog, backlog_for
from popgraph.open_model import Call, Interface, OpenModel, recalled
from popgraph.runner import Overriding, Runner
from popgraph.support.argument_types import check_types
from popgraph.support.description import Description
from popgraph.support.files import changed, is_unchanged
from popgraph.support.garbage import while_importing

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.passes.base import Compilation
    from popgraph.passes.options import Options


@check_types("bounds")
def compile(
    model: Any,
    *,
    threads: int = 1,
    backend: str = DEFAULT,
    options: Options | None = None,
    indices: str | None = None,
    quick: bool | None = None,
    bounds: Mapping[str, int] | None = None,
) -> Runner:
    """
    Compiles a model.

    `model` is a path (.onnx, .pgraph, .mlir, .gguf, or a folder with config.json and weights), a
    `.pgraph` text, ONNX bytes, a ModelProto, a Builder or an IR module. `backend` is "c",
    "reference" (NumPy), or one registered by an extension.

    `indices` defines the result of out-of-range indices in inputs: "error" (the default) raises
    IndicesError, "nearest" clamps them.

    If dimensions are unknown, one program serves the sizes that vary between calls, where the
    operators allow it; another one is built when sizes become much larger or smaller. `bounds={"N":
    256}` states the largest size of a dimension, so that the first program serves all.

    With `quick`, a model that is not cached answers sooner: unoptimized programs run while tuned
    ones are built in the background. Results are the same up to the order of summation. `run.tuned`
    says whether tuned programs have taken over, `run.wait()` waits for them. By default (None),
    models of some size start so in terminals and notebooks, and wherever `determinism="portable"`
    makes all bits the same.
    """
    backlog = backlog_for(
        quick,
        is_native=backend_named(backend).is_native,
        determinism=getattr(options, "determinism", ""),
        trains=getattr(options, "training", None) is not None,
    )
    how = (model, threads, backend, options, indices, backlog, bounds or {})
    return known(*how) or compiled(*how)


def known(
    model: Any,
    threads: int,
    backend: str,
    options: Options | None,
    indices: str | None,
    backlog: Backlog | None,
    bounds: Mapping[str, int],
) -> Runner | None:
    """A runner from the cache, without the compiler; None if the model was not compiled before."""
    found = backend_named(backend).shortcuts.recall(model, options, threads, indices)
    if found is None:
        return None

    def make() -> Runner:
        return compiled(model, threads, backend, options, indices, backlog, bounds)

    overriding = _overriding(found.overridable, found.files, make)
    describe = _describing(model, options, found.files)
    if isinstance(found, KnownProgram):
        Interface((), ()).check_bounds(bounds)
        return Runner(found.program, overriding, describe)
    interface = Interface(**found.interface)
    open_model = OpenModel(interface, KnownPrograms(found, make), bounds)
    return Runner(open_model, overriding, describe, backlog=backlog)


def compiled(
    model: Any,
    threads: int,
    backend: str,
    options: Options | None,
    indices: str | None,
    backlog: Backlog | None,
    bounds: Mapping[str, int],
    check: Callable[[ModuleOp, Compilation], None] | None = None,
) -> Runner:
    """
    Compiles a model; with a `backlog`, quick programs run until tuned ones are built.

    `check` is called with the model once it is loaded, and may refuse it.
    """
    with while_importing():
        compiler = import_module("popgraph.compiler")
    made: Runner = compiler.compile(
        model,
        threads=threads,
        backend=backend,
        options=options,
        indices=indices,
        backlog=backlog,
        bounds=bounds,
        check=check,
    )
    return made


def _overriding(
    names: Sequence[str], files: Mapping[str, Sequence[int]], compiled: Callable[[], Runner]
) -> Overriding | None:
    """Runs calls that override initializers; these need the model itself."""

    def make(names: frozenset[str]) -> Runner:
        if not is_unchanged(files):
            raise changed(files)
        overriding = compiled().overriding
        assert overriding is not None, "the shortcut says that initializers are overridable"
        return overriding.make(names)

    return Overriding(names, make) if names else None


def _describing(
    model: object, options: Options | None, files: Mapping[str, Sequence[int]]
) -> Callable[[], Description | None]:
    """Describes a cached model by reading its file again."""

    def describe() -> Description | None:
        if not is_unchanged(files):
            raise changed(files)
        said: Description | None = import_module("popgraph.compiler").described(model, options)
        return said

    return describe


class KnownPrograms:
    """The cached programs of an open model; the model is loaded only for other calls."""

    def __init__(self, known: KnownModel, compiled: Callable[[], Runner]) -> None:
        self._known, self._compiled = known, compiled
        self._model: OpenModel | None = None
        """The loaded model, once a program was not in the cache."""

    def __call__(self, call: Call) -> Executable:
        """The program for a call."""
        return recalled(self._known, call) or self._read().make(call)

    def _read(self) -> OpenModel:
        if self._model is None:
            if not self._known.is_unchanged():
                raise changed(self._known.files)
            model = self._compiled().open
            assert model is not None, "the shortcut says that the model is open"
            self._model = model
        return self._model
