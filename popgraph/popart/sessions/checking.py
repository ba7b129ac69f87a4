"""All checks of sessions in PopART's order: at construction, and at compilation."""

from __future__ import annotations

from collections.abc import Collection

from popgraph.builder.opset.enums import DeviceType
from popgraph.popart.exceptions import as_popart_errors
from popgraph.popart.programs.program import Program
from popgraph.popart.refusals import Asked, Moment, refuse
from popgraph.popart.sessions.ipu_memory import check_memory
from popgraph.popart.sessions.pipelining import check_device
from popgraph.popart.sessions.setup import Setup
from popgraph.support.logs import log_of


def check_setup(setup: Setup) -> None:
    """
    Refuses invalid settings and models; assigns replicas to ranks and nodes to IPUs, which may
    fail.
    """
    model = setup.model
    refuse(Moment.MADE, _asked(setup))
    setup.share_out()
    setup.patterns.check()
    with as_popart_errors():
        model.check_loss()
        log_of("ir").info("Preparing the model of session %s", setup.name)
        model.heed(setup.options, group_variances=setup.manners.group_variances)
        refuse(Moment.READ, _asked(setup))
        setup.place()


def check_compilation(setup: Setup, program: Program) -> None:
    """Refuses programs that PopART refuses when it compiles for a device."""
    setup.options.log_what_has_no_effect()
    check_device(setup.model, setup.options, setup.dataflow, setup.ipus)
    refuse(Moment.PREPARED, _asked(setup, program.inputs))
    if setup.device.type is DeviceType.IpuModel:
        allowed = setup.options.engineOptions.get("debug.allowOutOfMemory", "false")
        with as_popart_errors():
            ipu = setup.modelled(program.replicas.count)
            check_memory(program, ipu, summarizes=allowed == "true")


def _asked(setup: Setup, inputs: Collection[str] = ()) -> Asked:
    return Asked(
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
