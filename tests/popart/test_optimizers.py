"""Tests PopART's optimizers: values, refusals, and the specification for the compiler."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import popgraph.popart as popart
from popgraph.passes import optimizer_spec as ours
from popgraph.popart import SGD, Adam, Adaptive, ConstSGD
from popgraph.popart.api.optimizers import popart_optimizer

SEPARATE = popart.SGDAccumulatorAndMomentum.Separate


def message(call: Callable[[], object]) -> str:
    with pytest.raises(popart.popart_exception) as caught:
        call()
    return str(caught.value.args[0])


def test_optimizer_values() -> None:
    assert popart.OptimizerValue() == popart.OptimizerValue(0.0, False)
    value = popart.OptimizerValue
    assert (value(0.5).val(), value(0.5).isConst()) == (0.5, True)
    assert (value().val(), value((2, False)).isConst()) == (0.0, False)
    assert value(1.0, True) == value((1.0, True)) != value(1.0, False)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: ConstSGD(0.0),
            "Constant, zero learning rate in SGD, bailing as this might be a user error.",
        ),
        (lambda: ConstSGD(0.1, loss_scaling=0.0), "Loss scaling cannot be 0"),
        (
            lambda: ConstSGD(-0.1),
            "Negative learning rate (-0.1) in SGD, bailing as this might be a user error.",
        ),
        (
            lambda: Adam({"defaultBeta1": (-1, True)}),
            "Negative beta1 (-1) in Adam, bailing as this might be a user error",
        ),
        (
            lambda: SGD({"defaultDampening": (0.5, True), "nesterov": (True, True)}),
            "When enable nesterov momentum, dampening (0.5) in SGD shouled be zero",
        ),
        (
            lambda: SGD({"defaultVelocityScaling": (-1, True)}),
            "Non-positive velocity scaling (-1) in SGD is not supported",
        ),
        (
            lambda: SGD({"defaultLearningRate": [0.1, True]}),
            "A value in the optimizer map must be a py::tuple (in getOptimizerValueDictionary)",
        ),
        (
            lambda: SGD({1: (0.1, True)}),
            "A key in the optimizer map input must be a py::str (in getOptimizerValueDictionary)",
        ),
        (
            lambda: SGD({"defaultNesterov": (True, True)}),
            "Invalid SGD key, defaultNesterov, the allowed keys are ( defaultLearningRate "
            "defaultWeightDecay defaultMomentum defaultDampening defaultVelocityScaling "
            "lossScaling nesterov )",
        ),
        (
            lambda: Adaptive({}, mode=popart.AdaptiveMode.AdaGrad, rmsprop_tf_variant=True),
            "The rmspropTFVariant parameter is only valid with the RMSProp and CenteredRMSProp "
            "optimizers.",
        ),
        (
            lambda: Adam({"defaultMomentum": (0.9, True)}),
            "Invalid Adam key, defaultMomentum, the allowed keys are ( defaultLearningRate "
            "defaultWeightDecay defaultBeta1 defaultBeta2 defaultEps lossScaling "
            "defaultMaxWeightNorm maxWeightNorm )",
        ),
        (
            lambda: SGD({}).insertSpecific("w", {"momentums": (0.9, True)}),
            "Invalid key momentums in SGD::insertSpecific. Permitted keys are ( learningRate "
            "weightDecay momentum dampening velocityScaling nesterov )",
        ),
    ],
)
def test_invalid_optimizer_values(make: Callable[[], object], text: str) -> None:
    assert message(make).startswith(text)


def test_zero_is_fine_where_it_can_change_and_scales_may_be_negative() -> None:
    assert SGD({"defaultLearningRate": (0.0, False)}).learningRates().getDefault().val() == 0
    assert ConstSGD(0.1, loss_scaling=-2.0).getLossScalingVal() == -2


def test_defaults_are_popart_s() -> None:
    kept = ours.OF_WEIGHT
    assert SGD({}).spec() == ours.SGD(
        learning_rate=ours.Scalar(0.1), accum_type=kept, accl1_type=kept
    )
    assert Adam({}).spec() == ours.Adam(
        learning_rate=ours.Scalar(0.1),
        epsilon=ours.Scalar(1e-6),
        max_weight_norm=ours.Scalar(10),
        accum_type=kept,
    )
    assert Adaptive({}).spec() == ours.Adaptive(
        learning_rate=ours.Scalar(0.01),
        alpha=ours.Scalar(0.99),
        epsilon=ours.Scalar(1e-6),
        accum_type=kept,
        accl3_type=kept,
    )


def test_specifications_for_the_compiler() -> None:
    optimizer = SGD(
        {
            "defaultLearningRate": (0.5, False),
            "defaultMomentum": (0.9, True),
            "nesterov": (1, True),
        },
        clip_norm_settings=[popart.ClipNormSettings.clipWeights(["a", "b"], 3.0)],
    )
    optimizer.insertSpecific("w", {"momentum": (0.0, True)})
    spec = optimizer.spec()
    assert spec.learning_rate == ours.Scalar(0.5, constant=False)
    assert spec.clip == (ours.ClipNorm(3.0, ("a", "b"), of_updates=True),)
    assert spec.nesterov
    assert not spec.for_weight("w").has_velocity
    assert spec.for_weight("v").has_velocity
    assert spec.for_weight("w").learning_rate == ours.Scalar(0.5, constant=False)
    lamb = Adam({}, mode=popart.AdamMode.LambNoBias, scaled_optimizer_state=True).spec()
    assert (lamb.mode, lamb.scaled_state) == ("lamb_no_bias", True)


def test_old_signatures(capsys: pytest.CaptureFixture[str]) -> None:
    clip = [popart.ClipNormSettings.clipAllWeights(1.0)]
    half = popart.DataType.FLOAT16
    spec = SGD({"defaultMomentum": (0.9, True)}, clip, SEPARATE, half, half).spec()
    assert (spec.combined, spec.accum_type, spec.accl1_type) == (False, "f16", "f16")
    assert spec.clip == (ours.ClipNorm(1.0, of_updates=True),)
    with pytest.warns(DeprecationWarning):
        old = Adam({"maxWeightNorm": (3.0, True)})
    assert old.maxWeightNorms().getDefault().val() == 3
    assert (
        "Using 'maxWeightNorm' as a key in the Adam constructor is deprecated"
        in capsys.readouterr().err
    )
    assert not SGD(0.5).learningRates().getDefault().isConst()
    assert SGD(0.5, 0.1).weightDecays().getDefault().val() == 0.1
    assert SGD(learning_rate=0.5, values=0.25).learningRates().getDefault().val() == 0.5
    assert ConstSGD(0.5, 0.1, 2.0).spec() == ours.SGD(
        learning_rate=ours.Scalar(0.5),
        weight_decay=ours.Scalar(0.1),
        loss_scaling=ours.Scalar(2.0),
        accum_type=ours.OF_WEIGHT,
        accl1_type=ours.OF_WEIGHT,
    )


SEPARATE = popart.SGDAccumulatorAndMomentum.Separate
MOMENTUM = {"defaultMomentum": (0.9, False)}
CLIPPED = popart.ClipNormSettings.clipAllWeights
REPLACEMENTS = [
    (
        SGD({"defaultLearningRate": (0.1, False)}),
        Adam({}),
        "Can not replace optimizer of type SGD with new optimizer of type Adam",
    ),
    (
        SGD({}),
        SGD({"defaultLearningRate": (0.1, False)}),
        "Problem with learning rates. Default value is not a valid replacement. "
        "Can not replace a constant value with a non constant value.",
    ),
    (
        SGD({}),
        ConstSGD(0.2),
        "Problem with learning rates. Default value is not a valid replacement. "
        "Values are constant but do not match.",
    ),
    (
        Adam({}),
        Adam({"defaultMaxWeightNorm": (5.0, True)}),
        "Problem with mwn. Default value is not a valid replacement. "
        "Values are constant but do not match.",
    ),
    (
        SGD({}),
        SGD({"lossScaling": (2.0, True)}),
        "Problem with loss scaling. Values are constant but do not match.",
    ),
    (SGD({}), SGD({}, clip_norm_settings=[CLIPPED(1.0)]), "Clip norm settings do not match."),
    (
        SGD({}, clip_norm_settings=[CLIPPED(2.0)]),
        SGD({}, clip_norm_settings=[CLIPPED(1.0)]),
        "Clip norm settings at index 0 do not match.",
    ),
    (
        SGD(MOMENTUM),
        SGD(MOMENTUM, accumulatorAndMomentum=SEPARATE),
        "this has SGDAccumulatorAndMomentum SGDAccumulatorAndMomentum::Combined, "
        "but other has SGDAccumulatorAndMomentum::Separate",
    ),
    (
        SGD(MOMENTUM, accumulatorAndMomentum=SEPARATE, accumType=popart.DataType.FLOAT),
        SGD(MOMENTUM, accumulatorAndMomentum=SEPARATE, accumType=popart.DataType.FLOAT16),
        "this has SGDAccumulatorAndMomentum::Separate and sgdAccumType FLOAT, "
        "but other has FLOAT16",
    ),
    (
        SGD({"defaultMomentum": (0.5, False)}),
        SGD({"defaultMomentum": (0.0, True)}),
        "Problem with momentums. Default value is not a valid replacement. "
        "Can not replace a constant value with a non constant value.",
    ),
    (Adam({}), Adam({}, mode=popart.AdamMode.Lamb), "Adam modes do not match"),
    (
        Adaptive({}),
        Adaptive({}, weight_decay_mode=popart.WeightDecayMode.L2Regularization),
        "Weight decay modes do not match",
    ),
]


@pytest.mark.parametrize(("old", "new", "text"), REPLACEMENTS, ids=[r[2] for r in REPLACEMENTS])
def test_invalid_replacements(old: popart.Optimizer, new: popart.Optimizer, text: str) -> None:
    error = message(lambda: old.validate_replacement(new))
    assert error == f"New optimizer is not a valid replacement. {text}"
    old.validate_replacement(old)


def test_a_weight_gets_specific_values_once() -> None:
    optimizer = SGD({})
    optimizer.insertSpecific("w", {"learningRate": (0.5, False)})
    with pytest.raises(popart.popart_exception, match="already a specific value for w present"):
        optimizer.insertSpecific("w", {"learningRate": (0.5, False)})


def test_variable_values_stay_variable() -> None:
    old = SGD({"defaultLearningRate": (0.1, False)})
    old.validate_replacement(SGD({"defaultLearningRate": (0.2, False)}))
    assert "constant value" in message(lambda: old.validate_replacement(ConstSGD(0.2)))


def test_replacements_have_the_same_specific_weights() -> None:
    old, new = SGD({}), SGD({})
    old.insertSpecific("w", {"learningRate": (0.5, False)})
    assert "number of specific tensors" in message(lambda: old.validate_replacement(new))
    new.insertSpecific("v", {})
    assert "Could not find tensor w" in message(lambda: old.validate_replacement(new))


def test_unimplemented_options_are_refused() -> None:
    assert "accl1_type" in message(lambda: Adam({}, accl1_type=popart.DataType.INT32))


def test_nesterov_may_be_for_some_weights_only() -> None:
    special = SGD({"defaultMomentum": (0.9, True)})
    special.insertSpecific("w", {"nesterov": (1.0, True)})
    spec = ours.OptimizerSpec.parse(str(special.spec()))
    assert isinstance(spec, ours.SGD)
    assert spec.for_weight("w").nesterov is True
    assert not spec.for_weight("v").nesterov
    assert spec.with_values_of(spec) == spec


def test_states_have_the_requested_types() -> None:
    half, single = popart.DataType.FLOAT16, popart.DataType.FLOAT
    made = [
        SGD({}, accumType=half, accl1Type=half, accumulatorAndMomentum=SEPARATE),
        Adam({}, accum_type=half, accl1_type=half, accl2_type=single),
        Adaptive({}, accum_type=half, accl2_type=half, accl3_type=half),
    ]
    for optimizer in made:
        spec = ours.OptimizerSpec.parse(str(optimizer.spec()))
        assert spec == optimizer.spec() == popart_optimizer(spec).spec()
    types = ["Accum___", "Accl1___", "Accl2___", "Accl3___"]
    assert [[one.spec().state_type(prefix) for prefix in types] for one in made] == [
        ["f16", "f16", "", ""],
        ["f16", "f16", "", ""],
        ["f16", "", "f16", "f16"],
    ]


def test_enums_are_popart_s() -> None:
    assert (popart.DataType.FLOAT.name, str(popart.AdamMode.Lamb)) == ("FLOAT", "AdamMode.Lamb")
    assert [int(one) for one in popart.ReductionType] == [0, 1, 2]
    context = popart.BatchSerializationTransformContext
    assert context.Fwd is context.Forward
    assert popart.reservedGradientPrefix() == "Gradient___"
    assert popart.reservedDefaultAdamBeta1Prefix() == "adamBeta1___default___"
    assert all(getattr(popart, name) is not None for name in dir(popart))


def test_type_checkers_see_the_definitions_of_all_names() -> None:
    assert popart.__file__ is not None
    nodes = ast.walk(ast.parse(Path(popart.__file__).read_text()))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    shown = {node.module for node in imports if node.names[0].name == "*"}
    values = [getattr(popart, name) for name in dir(popart) if not name.startswith("_")]
    homes = {value.__module__ for value in values if hasattr(value, "__qualname__")}
    assert homes == shown
