"""Checks of sessions in PopART's order: at construction, at compilation, and after runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from popgraph.backends.base import Executable
from popgraph.builder.opset.enums import DeviceType
from popgraph.ipu.machine import Ipu
from popgraph.ipu.report import head, overflow
from popgraph.popart.api.debugging import OutOfMemoryError
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import (
    OutOfMemoryException,
    as_popart_errors,
    popart_exception,
    poplar_application_runtime_error,
)
from popgraph.popart.programs.program import Program
from popgraph.popart.refusals import RefusalContext, SessionPhase, refuse
from popgraph.popart.sessions.pipelining import check_device
from popgraph.popart.sessions.setup import Setup
from popgraph.support.arrays import Array
from popgraph.support.logs import log_of
from popgraph.training.diagnosis import non_finite


def check_setup(setup: Setup) -> None:
    """
    Refuses invalid settings and models; assigns replicas to ranks and nodes to IPUs, which may
    fail.
    """
    model = setup.model
    refuse(SessionPhase.CREATED, _context(setup))
    setup.share_out()
    setup.patterns.check()
    with as_popart_errors():
        model.check_loss()
        log_of("ir").info("Preparing the model of session %s", setup.name)
        model.apply_options(setup.options, group_variances=setup.behaviour.group_variances)
        refuse(SessionPhase.READ, _context(setup))
        setup.place()


def check_compilation(setup: Setup, program: Program) -> None:
    """Refuses programs that PopART refuses when it compiles for a device."""
    setup.options.log_ignored_options()
    check_device(setup.model, setup.options, setup.dataflow, setup.ipus)
    refuse(SessionPhase.PREPARED, _context(setup, program.inputs))
    if setup.device.type is DeviceType.IpuModel:
        allowed = setup.options.engineOptions.get("debug.allowOutOfMemory", "false")
        with as_popart_errors():
            ipu = setup.modelled(program.replicas.count)
            check_memory(program, ipu, with_summary=allowed == "true")


def _context(setup: Setup, inputs: Collection[str] = ()) -> RefusalContext:
    return RefusalContext(
        setup.model,
        setup.options,
        setup.dataflow,
        setup.rule,
        setup.patterns,
        setup.device,
        setup.grouped,
        setup.differentiated,
        inputs,
    )


_SURELY_FITS = 1 / 8
"""
Fraction of the total tile memory below which a program fits without consulting the model.

Most programs are far below it, and the model takes time.
"""

_HINT = (
    "take a smaller batch, more IPUs (numIPUs), or all tiles of one (tilesPerIPU: 1216 of ipu1, "
    "1472 of ipu2); createCpuDevice has the memory of this machine"
)


def check_memory(program: Program, ipu: Ipu, *, with_summary: bool) -> None:
    """With `with_summary`, the error has a memory summary, as `debug.allowOutOfMemory` requests."""
    if program.code.peak_bytes <= _SURELY_FITS * ipu.total_tiles * ipu.tile_bytes:
        return
    model = program.on_ipus(ipu)
    needed = model.memory
    if not needed.overflowing:
        return
    tile = needed.fullest
    message = (
        f"Out of memory on tile {tile}: {int(needed.by_tile[tile])} bytes used but tiles only have "
        f"{ipu.tile_bytes} bytes of memory"
    )
    log_of("devicex").error("Memory allocation error : %s", message)
    summary = "\n".join(head(model)) if with_summary else None
    raise OutOfMemoryException(OutOfMemoryError(message, summary, f"{overflow(needed)}: {_HINT}"))


FORWARD_ONLY = "implicitPipeliningFwdOnly"
"""PopART's handle of the program that runs only the forward stages."""


def is_forward_only(handle: object, options: SessionOptions) -> bool:
    """Whether a handle is that of the forward-only program; unknown names are refused."""
    if not isinstance(handle, str):
        return False  # numbers are handles of the one program that every session has
    if handle == FORWARD_ONLY and options.createImplicitPipeliningFwdOnlyProgram:
        return True
    raise popart_exception(f"[Devicex::run] Program {handle} not found.", "Session.run")


def check_floats(executable: Executable, results: Mapping[str, Array]) -> None:
    """
    Raises the floating-point exception of an IPU, after the micro-batch.

    An IPU stops at the operation that produces infinity or NaN. Here only values that reach a
    result or a variable are detected, not values that, for example, only feed a comparison.
    """
    variables = {name: executable.read(name) for name in executable.variables}
    for what, arrays in (("result", results), ("variable", variables)):
        for name in non_finite(arrays):
            raise poplar_application_runtime_error(
                f"floating-point exception: {what} {name!r} holds infinities or NaN",
                "SessionOptions.enableFloatingPointChecks",
                "look at what the node computes: printtensor shows its inputs",
            )
