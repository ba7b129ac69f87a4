"""The entry point `popgraph.compile`, which starts cached programs without the compiler."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from popgraph.backends.base import Executable
from popgraph.backends.c.run.warm_start import KnownModel, recall
from popgraph.open_model import Call, Interface, OpenModel, recalled
from popgraph.runner import Runner
from popgraph.support.errors import RunError

if TYPE_CHECKING:
    from popgraph.passes.options import Options


def compile(
    model: Any,
    *,
    threads: int = 1,
    backend: str = "c",
    options: Options | None = None,
    indices: str | None = None,
) -> Runner:
    """
    Makes a model ready to run.

    `model` is a path (.onnx, .pgraph, .mlir), ONNX bytes, a ModelProto, a Builder or an IR module;
    `backend` is "c", or "reference" for NumPy. `indices` says what one out of range means that the
    inputs bring: "error" (a run ends with an IndicesError), else "nearest"; without it, an error
    in the reference and in training.
    """
    found = recall(model, options, threads, indices) if backend == "c" else None

    def compiled() -> Runner:
        compiler = import_module("popgraph.compiler")
        made: Runner = compiler.compile(
            model, threads=threads, backend=backend, options=options, indices=indices
        )
        return made

    if found is None:
        return compiled()
    if not isinstance(found, KnownModel):
        return Runner(found)
    interface = Interface(**found.interface)
    return Runner(OpenModel(interface, KnownPrograms(found, compiled)))


class KnownPrograms:
    """The programs of an open model that was compiled before; it is read for others only."""

    def __init__(self, known: KnownModel, compiled: Callable[[], Runner]) -> None:
        self._known, self._compiled = known, compiled
        self._model: OpenModel | None = None
        """The model itself, once a program was wanted that is not known."""

    def __call__(self, call: Call) -> Executable:
        """The program for a call."""
        return recalled(self._known, call) or self._read().make(call)

    def _read(self) -> OpenModel:
        if self._model is None:
            if not self._known.is_unchanged():
                raise _changed(self._known)
            model = self._compiled().open
            assert model is not None, "the shortcut says that the model is open"
            self._model = model
        return self._model


def _changed(known: KnownModel) -> RunError:
    return RunError(
        "the model's file has changed since it was compiled, and has no program for this call yet",
        ", ".join(known.files),
        "compile it again: popgraph.compile(model)",
    )
