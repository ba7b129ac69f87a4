"""All that sessions refuse, in PopART's order: as they are made, and as they are compiled."""

from __future__ import annotations

from popgraph.builder.opset.enums import DeviceType
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.popart.programs.program import Program
from popgraph.popart.sessions.device_checks import check_gcl_options, check_lowering
from popgraph.popart.sessions.distributed import check_distributed
from popgraph.popart.sessions.folding import left_to_the_device, without_implementation
from popgraph.popart.sessions.gradient_checks import check_gradients
from popgraph.popart.sessions.ipu_memory import check_memory
from popgraph.popart.sessions.lowering_checks import check_libraries, check_operators
from popgraph.popart.sessions.model_notices import tell_notices, tell_of_states
from popgraph.popart.sessions.needed_patterns import check_needed
from popgraph.popart.sessions.pipelining import check_device
from popgraph.popart.sessions.setting_checks import (
    check_buffering,
    check_clipping,
    check_exchange,
    check_loss_scaling,
    check_settings,
    tell_transforms,
)
from popgraph.popart.sessions.setup import Setup
from popgraph.support.logs import TRACE, log_of

_NOT_FOLDED = (
    'No ConstExpr implementation of %s. Consider implementing a "constant to variable" transform.'
)

_NO_IMPLEMENTATION = "No ConstExpr implementation of %s, returning from constant folding early."

_NOT_CONSTANT = (
    'Tensor %s was declined as a target of optimization "constantWeights" on the grounds that the '
    "tensor's %s do not allow for the TensorType::Variable to be initialized as a "
    "TensorType::Const"
)


def check_setup(setup: Setup) -> None:
    """Refuses settings and models; decides ranks and places, which not every model can have."""
    options, model = setup.options, setup.model
    options.check(training=setup.trains)
    check_settings(options, setup.dataflow, setup.rule)
    check_gcl_options(options)
    check_loss_scaling(options, setup.rule)
    check_distributed(options)
    setup.share_out()
    _check_ipus(setup)
    setup.patterns.check()
    with as_popart_errors():
        model.check_loss()
        log_of("ir").info("Preparing the model of session %s", setup.name)
        model.heed(options, group_variances=setup.manners.group_variances)
        check_exchange(setup.strategies.values(), options)
        _tell_what_stays(setup)
        if not setup.trains:
            tell_transforms(options.experimentalSettings)
        tell_notices(model)
        check_libraries(model, options, training=setup.trains)
        if setup.trains:
            check_gradients(model)
            tell_of_states(model, setup.differentiated)
            check_clipping(setup.rule, model.weight_names)
        setup.place()


def _check_ipus(setup: Setup) -> None:
    """A device of several IPUs has room for the same number of IPUs per replica."""
    count, replicas = setup.device.numIpus, setup.plan.replicas
    if setup.device.type is not DeviceType.Cpu and count % replicas:
        raise popart_exception(
            "For replicated graphs, the number of IPUs must be divisible by the replication "
            "factor.",
            "SessionOptions.replicatedGraphCount",
            f"the device has {count} IPUs for {replicas} replicas",
        )


def _tell_what_stays(setup: Setup) -> None:
    """Warns of weights that are no constants, and operators that are not computed at once."""
    model, constant = setup.model, setup.constant_weights
    for id, one in setup.grouped.items() if constant else ():
        log_of("popart").warning(_NOT_CONSTANT, id, one.settings)
    if not model.is_of_popart:
        return
    for type_ in without_implementation(model.graph):
        log_of("ces").log(TRACE, _NO_IMPLEMENTATION, type_)
    weights = model.weight_names if constant else ()
    for type_ in left_to_the_device(model.graph, weights, setup.dataflow.anchors()):
        log_of("ces").warning(_NOT_FOLDED, type_)


def check_compilation(setup: Setup, program: Program) -> None:
    """Refuses what PopART refuses of a device, once code is to be made for it."""
    options, model, device = setup.options, setup.model, setup.device
    anchors = setup.dataflow.anchors()
    options.check_engine_options()
    options.log_what_has_no_effect()
    check_lowering(options, None if device.type is DeviceType.Cpu else device.tilesPerIPU)
    check_device(model, options, setup.dataflow, setup.ipus)
    check_buffering(options, program.inputs, anchors)
    check_needed(model, setup.patterns, anchors, setup.differentiated)
    check_operators(model)
    if device.type is DeviceType.IpuModel:
        allowed = options.engineOptions.get("debug.allowOutOfMemory", "false")
        with as_popart_errors():
            check_memory(program, setup.modelled(program.replicas.count), tells=allowed == "true")
