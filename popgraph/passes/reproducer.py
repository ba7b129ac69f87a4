"""Reproducers: the module before a failing pass and the passes to run, as one file of IR text."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass
from popgraph.passes.observer import SameMeaning
from popgraph.support.errors import PassError, PopgraphError
from popgraph.support.writing import write_atomically

MARK = "// popgraph opt --passes "
"""The beginning of a reproducer's first line; the passes follow."""

MOST_OPERATIONS = 2_000
"""Maximum size of a module for which the failing pass is searched: larger ones take too long."""


def text_of(module: ModuleOp, passes: Sequence[Pass]) -> str:
    """A module and the passes to run on it, as `popgraph opt` reads them."""
    pipeline = ",".join(str(one.pipeline_pass_spec()) for one in passes)
    return f"{MARK}{pipeline}\n{module!s}\n"


def passes_in(text: str) -> str:
    """The passes in a reproducer's first line; empty for other IR text."""
    first = text.partition("\n")[0]
    return first.removeprefix(MARK).strip() if first.startswith(MARK) else ""


def reproducer(
    original: ModuleOp,
    passes: Sequence[Pass],
    compilation: Compilation,
    check: SameMeaning | None = None,
) -> str:
    """
    The smallest reproducer of a failure of one of these passes; changes `original`.

    A pass also fails if `check` raises because the meaning changed. Elements of large weights are
    not in the text: `popgraph opt` makes some up. Large modules are written whole, with all passes.
    """
    if sum(1 for _ in original.walk()) > MOST_OPERATIONS:
        return text_of(original, passes)
    for one in passes:
        before = original.clone()
        try:
            one.run(compilation, original)
            original.verify()
            if check is not None:
                check(one, before, original, compilation.weights)
        except Exception:
            return text_of(before, [one])
    raise PassError("the failure did not repeat")


def note_failure(
    error: Exception,
    original: ModuleOp,
    passes: Sequence[Pass],
    compilation: Compilation,
    check: SameMeaning | None = None,
) -> None:
    """Writes a reproducer of an internal error, and adds its path to the error as a note."""
    if isinstance(error, PopgraphError):
        return
    try:
        text = reproducer(original, passes, compilation, check)
        name = f"popgraph-{sha256(text.encode()).hexdigest()[:12]}.mlir"
        path = Path(tempfile.gettempdir()) / name
        write_atomically(path, [text.encode()], mode=0o600)
    except Exception as failed:
        error.add_note(f"no reproducer could be written: {failed}")
    else:
        option = " --check" if check is not None else ""
        error.add_note(f"`popgraph opt{option} {path}` reproduces the error")
