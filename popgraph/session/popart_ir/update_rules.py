"""The operators of each rule: SGD's three forms, Adam's relatives, the adaptive ones."""

from __future__ import annotations

from collections.abc import Callable

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.passes.optimizer_spec import SGD, Adam, Adaptive, OptimizerSpec
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.updates import COMBINED, Gathering, Turn, Update, reserved
from popgraph.session.step_shape import StepShape
from popgraph.support.replicas import Grouping

_NESTEROV = "_nesterovGrad"


def decompose_updates(
    graph: OpGraph,
    rule: OptimizerSpec,
    step: StepShape,
    scaling: str | None,
    shared_by: Callable[[str], Grouping],
    turn: Turn,
) -> None:
    """Writes updates as the operators of a rule; `scaling` is a loss scale that the host writes."""
    for op in [op for op in graph.ops if op.type == COMBINED]:
        update = Update(graph, op, rule, step, scaling, shared_by, turn)
        match update.rule:
            case SGD() as own if not own.has_velocity:
                _plain(update)
            case SGD() as own if own.combined:
                _velocity_of_gradients(own, update)
            case SGD() as own:
                _velocity(own, update)
            case Adam() as own:
                _adam(own, update)
            case Adaptive() as own:
                _adaptive(own, update)
        graph.order_alike(op, update.made_first)
        graph.forget(op)


# SGD


def _plain(update: Update) -> None:
    """SGD0: no state."""
    gradient = update.accumulated(update.named("FinalReducedGrad"))
    scalars = update.streamed({2: "scaledLearningRate0", 3: "weightDecayScaleFactor0"})
    inputs = {0: update.variable, 1: gradient} | scalars
    made = update.add("SGD0VarUpdate", inputs, update.updated)
    if update.clears:
        update.clear(update.named("Accum"), made)


def _velocity_of_gradients(rule: SGD, update: Update) -> None:
    """SGD1: gradients go into the velocity as they come."""
    gradient, own_gradients = update.gradient, update.named("Accl") + _NESTEROV
    if update.reduces and not update.accumulates:
        gradient = update.reduced(gradient, f"{update.variable}_reducedGrad")
    state = update.state("Accl")
    velocity = _gathered(update, state, gradient, "", {2: "dampeningScaleFactor1"})
    value = velocity
    if rule.nesterov:
        update.own_tensor(own_gradients)
        gathered = _gathered(update, own_gradients, gradient, _NESTEROV, {})
        ahead = _ahead(update, gathered, velocity, 1)
        update.clear(own_gradients, ahead)
        value = ahead.output
    scalars = update.streamed({2: "scaledLearningRate1"})
    first = update.add("SGD1VarUpdate", {0: update.variable, 1: value} | scalars, update.updated)
    scalars = update.streamed({2: "scaledMomentum1", 3: "scaledWeightDecay1"})
    inputs = {0: velocity, 1: update.variable} | scalars
    later = update.add("SGD1AcclUpdate", inputs, update.named("AcclFinalOut"))
    update.order(first, later)


def _gathered(
    update: Update, state: str, gradient: str, suffix: str, factor: dict[int, str]
) -> str:
    """Adds a gradient to a state; the state once all replicas have added theirs."""
    final = update.named("AcclToUpdate") + suffix
    late = update.reduces and update.accumulates
    first = update.named("AcclToReduce") + suffix if late else final
    way = Gathering.DAMPENED_ADD
    update.accumulate(state, gradient, first, way=way, factor=factor, for_each=True)
    return update.reduced(first, final) if late else final


def _ahead(update: Update, gradient: str, velocity: str, form: int) -> Op:
    """Nesterov's gradient, of where the velocity would lead."""
    inputs = {0: gradient, 1: update.variable, 2: velocity}
    scales = {0: f"dampeningScaleFactor{form}", 1: f"nesterovDampeningScaleFactor{form}"}
    scaling = update.streamed(scales)
    if len(scaling) == len(scales):
        name = f"{update.variable}_sgdInverseLossScale"
        inputs[3] = update.add("Mul", scaling, name, writes=False, name="_nesterov_0").output
    inputs |= update.streamed(
        {4: "sgdWeightDecay", 5: f"nesterovGradScaleFactor{form}", 6: "sgdMomentum"}
    )
    return update.add("SGD1Nesterov", inputs, update.variable + _NESTEROV, writes=False)


def _velocity(rule: SGD, update: Update) -> None:
    """SGD2: the velocity is a state of its own."""
    state = update.state("Accl1")
    gradient = update.accumulated()
    scalars = update.streamed({2: "scaledMomentum2", 3: "scaledWeightDecay1"})
    inputs = {0: state, 1: update.variable} | scalars
    name = "_accl_update_0_prev_v_w"
    slowed = update.add("SGD1AcclUpdate", inputs, update.fresh(state), name=name)
    way, factor = Gathering.DAMPENED_ADD, {2: "dampeningScaleFactor2"}
    name = "_accl_update_1_grads"
    made = update.accumulate(slowed.output, gradient, way=way, factor=factor, name=name)
    if update.clears:
        update.clear(update.named("Accum"), made)
    value = _ahead(update, gradient, made.output, 2).output if rule.nesterov else made.output
    scalars = update.streamed({2: "scaledLearningRate2"})
    update.add("SGD1VarUpdate", {0: update.variable, 1: value} | scalars, update.updated)


# rules with moments


def _adam(rule: Adam, update: Update) -> None:
    gradient = _prepared(update, "adamGradientScaling", decays=rule.decay)
    ratio = _ratio(update) if rule.scaled_state else {}
    type_ = "RescaleAccumulate" if ratio else "Accumulate"
    moments = []
    second = Gathering.INFINITY if rule.mode == "ada_max" else Gathering.MOVING_AVERAGE_SQUARE
    for role, factor, way in (
        ("Accl1", "adamBeta1", Gathering.MOVING_AVERAGE),
        ("Accl2", "adamBeta2", second),
    ):
        state = update.state(role)
        inputs = {0: state, 1: gradient} | update.streamed({2: factor}) | ratio
        output = update.fresh(state)
        name = f"_{role.lower()}"
        moments.append(update.add(type_, inputs, output, attributes=way.attributes, name=name))
    if update.clears:
        update.clear(update.named("Accum"), *moments)
    inputs = {}
    if rule.decay and (not rule.weight_decay.constant or rule.weight_decay.value > 0):
        inputs[0] = update.variable
    inputs |= {1: moments[0].output, 2: moments[1].output}
    if rule.corrects_bias:
        inputs[3] = update.own_number(update.named("Step"))
    inputs |= update.streamed({4: "weightDecay", 5: "adamBeta1", 6: "adamBeta2", 7: "adamEps"})
    like = moments[0].output
    change = update.add("AdamUpdater", inputs, update.named("AdamUpdater"), like=like).output
    inputs = {0: update.variable, 1: change}
    if rule.is_lamb and not (rule.max_weight_norm.constant and rule.max_weight_norm.value == 0):
        inputs[2] = _square(update, update.variable, "LambR1Sq", "_lamb1")
        inputs[3] = _square(update, change, "LambR2Sq", "_lamb2")
    inputs |= update.streamed({4: "learningRate", 5: "maxWeightNorm"})
    update.add("AdamVarUpdate", inputs, update.updated)


def _ratio(update: Update) -> dict[int, str]:
    """By how much the loss scale has changed; it is computed once for each IPU."""
    scaling, ipu = update.scaling, update.ipu
    if scaling is None:
        return {}
    scale, place = reserved("LossScaling"), "" if ipu is None else f"_vgid{ipu}"
    ratio = scaling.replace(scale, "LossScalingRatio_") + place
    if not update.is_known(ratio):
        before = update.own_number(scaling.replace(scale, "PreviousLossScaling_") + place)
        made = update.add("Div", {0: scaling, 1: before}, ratio, writes=False)
        inputs = {0: before, 1: scaling}
        update.order(made, update.add("CopyVarUpdate", inputs, update.fresh(before)))
    return {3: ratio}


def _square(update: Update, tensor: str, role: str, name: str) -> str:
    """The square of a norm."""
    info, output = TensorInfo("FLOAT", []), update.named(role)
    return update.add("LambSquare", {0: tensor}, output, info=info, writes=False, name=name).output


def _prepared(update: Update, scaling: str, *, decays: bool) -> str:
    """The gradient without loss scale, in the type of the states, with L2 regularization."""
    gradient, rule = update.accumulated(), update.rule
    scaled = isinstance(rule, Adam) and rule.scaled_state
    wide = not scaled and all(update.kept_as(role) == "FLOAT" for role in ("Accl1", "Accl2"))
    if wide and update.accumulated_as == "FLOAT16":
        info = TensorInfo("FLOAT", update.info.shape())
        output = update.fresh(gradient)
        cast = update.add("Cast", {0: gradient}, output, info=info, writes=False)
        gradient = cast.output
    gradient = _scaled(update, gradient, scaling, 1)
    if not decays:
        inputs = {0: gradient, 1: update.variable} | update.streamed({3: "weightDecay"})
        gradient = update.add("ScaledAdd", inputs, update.fresh(gradient), writes=False).output
    return gradient


def _scaled(update: Update, value: str, scalar: str, index: int, name: str = "") -> str:
    """A value times a scalar: an input of this index if the host writes it, else an attribute."""
    streamed, output = update.streamed({index: scalar}), update.fresh(value)
    if streamed:
        inputs = streamed | {1 - index: value}
        return update.add("Mul", inputs, output, like=value, writes=False, name=name).output
    attributes = {"scale": update.number(scalar)}
    return update.add(
        "Scale", {0: value}, output, writes=False, attributes=attributes, name=name
    ).output


def _adaptive(rule: Adaptive, update: Update) -> None:
    gradient = _prepared(update, "adaptiveGradientScaling", decays=rule.decay)
    alpha = {2: "adaptiveAlpha"}
    squared = Gathering.MOVING_AVERAGE_SQUARE
    way = Gathering.DAMPENED_ADD_SQUARE if rule.mode == "ada_grad" else squared
    state = update.state("Accl1")
    squares = update.accumulate(state, gradient, way=way, factor=alpha, name="_accl1")
    readers, inputs = [squares], {0: gradient, 1: squares.output}
    if rule.mode == "centered_rms_prop":
        way = Gathering.MOVING_AVERAGE
        state = update.state("Accl2")
        means = update.accumulate(state, gradient, way=way, factor=alpha, name="_accl2")
        readers.append(means)
        inputs[2] = means.output
    delta = rule.mode == "ada_delta"
    if delta:
        inputs[2] = update.state("Accl2")
    type_ = "AdaDeltaUpdater" if delta else "RMSPropUpdater"
    inputs |= update.streamed({3: "adaptiveEps"})
    name = f"AdaptiveUpdater___{update.variable}"
    made = update.add(type_, inputs, name, like=squares.output, writes=False)
    if update.clears:
        update.clear(update.named("Accum"), *readers, made)
    if delta:
        state = update.named("Accl2")
        update.accumulate(state, made.output, way=squared, factor=alpha, name="_accl2")
    inside = rule.tf_variant and rule.has_velocity
    value = made.output
    if rule.has_velocity:
        value = _slowed(rule, update, value)
    scalars = {} if inside else {2: "learningRate"}
    scalars |= {3: "weightDecay"} if rule.decay else {}
    inputs = {0: update.variable, 1: value} | update.streamed(scalars)
    update.add("ScaledVarUpdate", inputs, update.updated)


def _slowed(rule: Adaptive, update: Update, value: str) -> str:
    """What momentum makes of a change; TensorFlow's form has the learning rate in it."""
    if rule.tf_variant:
        value = _scaled(update, value, "learningRate", 0, "_tfrmspropupdatescaler")
    way, factor = Gathering.DECAY_ADD, {2: "adaptiveMomentum"}
    state = update.state("Accl3")
    return update.accumulate(state, value, way=way, factor=factor, name="_accl3").output
