"""Error classes, each with a message of three parts: what, where, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class PopgraphError(Exception):
    """
    A mistake the user can fix.

    `what` states the mistake, `where` its location in the user's terms (a `.pgraph` line, a Builder
    call, an ONNX node), `hint` what to do about it.
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
        # Names of files and tensors may contain characters that break terminals.
        return "\n".join(lines).encode(errors="backslashreplace").decode()


class ModelError(PopgraphError):
    """The model is invalid: damaged bytes, a cycle, an unknown operator, a bad file."""


class TypeMismatchError(PopgraphError):
    """A shape or an element type does not match."""

    node: object = None
    """The node whose operands do not match, if a model is being read."""


class UnsupportedError(PopgraphError):
    """A correct model requires a feature that PopGraph does not have (yet)."""


class NeedsHostError(UnsupportedError):
    """
    A node without a static form, since data determine its structure.

    Python can compute such a node, or its ancestors, to make its structure known.
    """

    inner: object = None
    """The node, possibly in a subgraph."""
    node: object = None
    """The node of the main graph that it is or is part of."""
    model: object = None
    """The original model, before any pass."""


class UnsizedError(UnsupportedError):
    """An operation cannot run for sizes that are unknown until a call."""


class ArgumentError(PopgraphError, TypeError):
    """An argument of a public function has an unknown name, or a value of another type."""


class CallError(PopgraphError):
    """An operator was called with invalid arguments."""


class PassError(PopgraphError):
    """An invalid request to a pass: an unknown name, a bad option."""


class ValidationError(PopgraphError):
    """A compiled program accesses memory wrongly: POPGRAPH_CHECK=2 could not prove it."""


class ExtensionError(PopgraphError):
    """An extension (a pass, an operator, a target) cannot be loaded or registered."""


class DifferentiationError(PopgraphError):
    """Training requires a gradient that does not exist."""


class BackendError(PopgraphError):
    """Code could not be generated, compiled or loaded."""


class RunError(PopgraphError):
    """The arrays given to a run do not fit the model."""


class IndicesError(RunError):
    """An index in data is out of range."""


class ParseError(PopgraphError):
    """A `.pgraph` text or an IR text is not well formed."""


class WriteError(PopgraphError):
    """A requested file cannot be written."""


class ErrorGroup(PopgraphError):
    """Several independent mistakes, reported together."""

    def __init__(self, errors: Sequence[PopgraphError]) -> None:
        super().__init__("\n\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


class UnsupportedGroup(ErrorGroup, UnsupportedError):
    """All features that a model requires and PopGraph does not have."""


def combined(refusals: Sequence[PopgraphError]) -> PopgraphError:
    """Merges refusals, in node order, into one error with one sentence per kind."""
    kinds: dict[tuple[str, str], list[PopgraphError]] = {}
    for one in refusals:
        kinds.setdefault((one.what, one.hint), []).append(one)
    errors = [_first_of(same) for same in kinds.values()]
    return errors[0] if len(errors) == 1 else UnsupportedGroup(errors)


def _first_of(same: Sequence[PopgraphError]) -> PopgraphError:
    """The first of several errors that differ only in location, with the count of the others."""
    first, more = same[0], len(same) - 1
    if not more:
        return first
    where = f"{first.where}, and {more} more node{'s' * (more > 1)}"
    return type(first)(first.what, where, first.hint)


@contextmanager
def reporting_out_of_memory() -> Iterator[None]:
    """Turns MemoryError into an error that names the model."""
    try:
        yield
    except MemoryError as error:
        raise BackendError(
            f"the model needs more memory than there is: {error or 'out of memory'}",
            hint="look for a dimension that is far too large (`popgraph print --at onnx`)",
        ) from error
