"""The error classes, each with a message of three parts: what, where, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class PopgraphError(Exception):
    """
    A mistake the user can mend.

    `what` says what is wrong, `where` names the place in the user's own terms (a `.pgraph` line,
    a Builder call, an ONNX node), `hint` says what to do about it.
    """

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  at: {self.where}")
        if self.hint:
            lines.append(f"  try: {self.hint}")
        # Names of files and of tensors may hold what no terminal can be told.
        return "\n".join(lines).encode(errors="backslashreplace").decode()


class ModelError(PopgraphError):
    """The model itself is unusable: damaged bytes, a cycle, an unknown operator, a bad file."""


class TypeMismatchError(PopgraphError):
    """A shape or an element type does not fit."""

    node: object = None
    """The node that does not take its inputs, where a model is being read."""


class UnsupportedError(PopgraphError):
    """A correct model asks for something that PopGraph cannot do (yet)."""


class NeedsHostError(UnsupportedError):
    """
    A node of a correct model has no static form: what data say decides its structure.

    Python can compute such a node, or what stands before it, so that its structure is known.
    """

    inner: object = None
    """The node, of whatever graph inside the model."""
    node: object = None
    """The node of the main graph that it is, or is in."""
    model: object = None
    """The model, as it was before any pass."""


class UnsizedError(UnsupportedError):
    """An operation of a model cannot run for sizes that only a call brings."""


class ArgumentError(PopgraphError, TypeError):
    """A public function was called with the name of an argument that it does not have."""


class CallError(PopgraphError):
    """An operator was called with what it does not take."""


class PassError(PopgraphError):
    """A pass was asked for something impossible: an unknown name, a bad option."""


class ExtensionError(PopgraphError):
    """Something from outside (a pass, an operator, a target) cannot be loaded or registered."""


class DifferentiationError(PopgraphError):
    """No gradient exists where training needs one."""


class BackendError(PopgraphError):
    """Code could not be generated, compiled or loaded."""


class RunError(PopgraphError):
    """The arrays given to a run do not fit the model."""


class IndicesError(RunError):
    """An index that data brought is outside of what it counts."""


class ParseError(PopgraphError):
    """A `.pgraph` text or an IR text is not well formed."""


class WriteError(PopgraphError):
    """A file that was asked for cannot be written."""


class ErrorGroup(PopgraphError):
    """Several independent mistakes, reported together."""

    def __init__(self, errors: Sequence[PopgraphError]) -> None:
        super().__init__("\n\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


class UnsupportedGroup(ErrorGroup, UnsupportedError):
    """All that a model asks for and PopGraph cannot do."""


def together(refusals: Sequence[PopgraphError]) -> PopgraphError:
    """Refusals, in the order of a model's nodes, as one error: a sentence for each kind."""
    kinds: dict[tuple[str, str], list[PopgraphError]] = {}
    for one in refusals:
        kinds.setdefault((one.what, one.hint), []).append(one)
    errors = [_first_of(same) for same in kinds.values()]
    return errors[0] if len(errors) == 1 else UnsupportedGroup(errors)


def _first_of(same: Sequence[PopgraphError]) -> PopgraphError:
    """The first of several errors that differ in their places only; it tells how many follow."""
    first, more = same[0], len(same) - 1
    if not more:
        return first
    where = f"{first.where}, and {more} more node{'s' * (more > 1)}"
    return type(first)(first.what, where, first.hint)


@contextmanager
def fitting_memory() -> Iterator[None]:
    """Says which model it was that asked for more memory than there is."""
    try:
        yield
    except MemoryError as error:
        raise BackendError(
            f"the model needs more memory than there is: {error or 'out of memory'}",
            hint="look for a dimension that is far too large (`popgraph print --at onnx`)",
        ) from error
