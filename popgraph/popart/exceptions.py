"""PopART's exception classes, and the conversion of PopGraph's errors into them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import RecoveryAction
from popgraph.engine.errors import (
    UnknownOutputError,
    UnknownWeightError,
    WeightBytesError,
    WeightShapeError,
    WeightTypeError,
)
from popgraph.passes.options import GRADIENT
from popgraph.support.errors import (
    BackendError,
    PopgraphError,
    RunError,
    UnsupportedError,
    WriteError,
)
from popgraph.support.shapes import Shape


class popart_exception(PopgraphError):
    """PopART's own errors; `args[0]` is the message."""


class unreadable_model(popart_exception):
    """The given model cannot be parsed as ONNX."""


class popart_internal_exception(popart_exception):
    """An internal invariant is violated."""


class popart_runtime_error(popart_exception, RunError):
    """Incorrect use of a session."""


class popart_unsupported_exception(popart_exception, UnsupportedError):
    """A feature of PopART that PopGraph does not implement."""


class optimizer_replacement_error(popart_runtime_error):
    """The new optimizer is incompatible with the current one."""


class OutOfMemoryException(popart_exception):
    """The model exceeds the memory; `error` is the compilation's summary."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error), hint=getattr(error, "hint", ""))
        self.error = error

    def getSummaryReport(self) -> str:
        return str(self.error.getSummaryReport())

    def getProfilePath(self) -> str:
        return str(self.error.getProfilePath())


class poplibs_exception(PopgraphError):
    """An error in the operator library."""


class poplar_exception(PopgraphError):
    """An error in the runtime."""


class poplar_runtime_error(poplar_exception):
    """A failed run."""


class poplar_application_runtime_error(poplar_runtime_error):
    """A failure of the program itself."""


class poplar_system_runtime_error(poplar_runtime_error):
    """A failure of the device."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """A device failure that a reset may fix."""

    recoveryAction = RecoveryAction.IPU_RESET


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """A permanent device failure."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """A device failure of unknown cause."""


_OPTIONS = {
    "groups": "VariableSettings",
    "ranks": "SessionOptions.globalReplicationFactor and globalReplicaOffset",
    "replicas": "SessionOptions.replicatedGraphCount",
    "stages": "SessionOptions.enablePipelining",
}
"""{engine option that an error names: PopART's option}."""
_HINTS = {
    "accumulate": "options.enableGradientAccumulation = True",
    "write the variables again": "session.weightsFromHost() writes the variables again",
}
"""{fragment of an engine hint: the equivalent hint for PopART programs}."""


def _popart_message(error: PopgraphError) -> PopgraphError | None:
    """PopART's own error for an engine error, if there is one."""
    match error:
        case UnknownOutputError(id=id, known=known):
            return popart_exception(_no_such_anchor(id, known))
        case UnknownWeightError(id=id):
            return popart_runtime_error(f"resetWeights, no tensor '{id}' in tensors")
        case WeightBytesError(id=id, held=held, given=given):
            return popart_runtime_error(
                f"sizes (in bytes) of src ({held}) and dst ({given}) differ in hostStreamToHost "
                f"for {id}"
            )
        case WeightShapeError(wanted=wanted, given=given):
            return popart_internal_exception(
                "The shape of the MutableVoidData for IO does not not match the expected write "
                f"region of this tensor. Tensor Write ({len(wanted)}): {_spaced(wanted)} != "
                f"MutableVoidData ({len(given)}): {_spaced(given)}"
            )
        case WeightTypeError(id=id):
            return popart_runtime_error(
                f"Trying to reset weights using tensor with non matching tensor info. Tensor ID: "
                f"{id}"
            )
    return None


def _no_such_anchor(id: str, known: Collection[str]) -> str:
    message = f"Anchor tensor `{id}' not in Ir Tensors. "
    tensor = id.removeprefix(GRADIENT)
    if tensor == id:
        message += f"The tensors are:\n[{' '.join(sorted(known))}]"
    elif tensor in known:
        message += (
            f"\nInterestingly, `{tensor}' IS in tensors.\n"
            "Note that not all tensors can have their gradients anchored:\n"
            "if an activation tensor does not lead to the loss,\n"
            "its gradient is zero and never computed."
        )
    return message


def _spaced(shape: Shape) -> str:
    return f"[{' '.join(map(str, shape))}]"


_JOINED: dict[type[PopgraphError], type[PopgraphError]] = {
    UnsupportedError: popart_unsupported_exception
}


def _joined(kind: type[PopgraphError]) -> type[PopgraphError]:
    if kind not in _JOINED:
        base = poplar_exception if issubclass(kind, BackendError) else popart_exception
        _JOINED[kind] = type(kind.__name__, (base, kind), {"__doc__": kind.__doc__})
    return _JOINED[kind]


class _PopartErrors:
    """See `as_popart_errors`; a step enters it, and generators would take a microsecond."""

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        own = (popart_exception, poplar_exception, poplibs_exception)
        if isinstance(error, PopgraphError) and not isinstance(error, own):
            raise _translated(error) from error


_POPART_ERRORS = _PopartErrors()


def as_popart_errors() -> AbstractContextManager[None]:
    """
    A context that makes each error of PopGraph also a `popart_exception` (or
    `poplar_exception`).

    Errors of the engine get PopART's class and message.
    """
    return _POPART_ERRORS


def _translated(error: PopgraphError) -> PopgraphError:
    if (own := _popart_message(error)) is not None:
        return own
    raised = _joined(type(error)).__new__(_joined(type(error)))
    where, hint = _OPTIONS.get(error.where, error.where), _HINTS.get(error.hint, error.hint)
    PopgraphError.__init__(raised, error.what, where, hint)
    return raised


@contextmanager
def writing(refusal: str) -> Iterator[None]:
    """Turns a write error into PopART's message `refusal`, with the reason as a note."""
    try:
        yield
    except WriteError as error:
        raised = popart_exception(refusal, error.where, error.hint)
        raised.add_note(f"  {error.what}")
        raise raised from error


def _raising(kind: type[PopgraphError]) -> Callable[[str], NoReturn]:
    @typed
    def throw(msg: str) -> NoReturn:
        raise kind(msg)

    return throw


_throw_popart_error = _raising(popart_exception)
_throw_popart_internal_error = _raising(popart_internal_exception)
_throw_popart_runtime_error = _raising(popart_runtime_error)
_throw_poplibs_error = _raising(poplibs_exception)
_throw_poplar_error = _raising(poplar_exception)
_throw_poplar_runtime_error = _raising(poplar_runtime_error)
_throw_application_runtime_error = _raising(poplar_application_runtime_error)
_throw_system_runtime_error = _raising(poplar_system_runtime_error)
_throw_recoverable_runtime_error = _raising(poplar_recoverable_runtime_error)
_throw_unrecoverable_runtime_error = _raising(poplar_unrecoverable_runtime_error)
_throw_unknown_runtime_error = _raising(poplar_unknown_runtime_error)
"""Functions by which programs test their error handling."""
