"""Tests that options and patterns have the effects in the table of PopART's names, and no other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import popgraph.popart as popart
from popgraph.popart.api.patterns import FUSING, PATTERNS
from popgraph.popart.surface import Effect, options, patterns
from tests.popart.observing import Given, Setting, differing, observed

RUNS = ("program", "results")
"""Observations that an option with an effect on the program may change."""


def where(storage: popart.TensorStorage, *more: Any) -> popart.TensorLocationSettings:
    return popart.TensorLocationSettings(popart.TensorLocation(storage, *more), 0, 0)


OFF_CHIP = where(popart.TensorStorage.OffChip)
SHARDED = where(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On)
ACCUMULATING: Given = (("enableGradientAccumulation", True), ("accumulationFactor", 4))
RANKS: Given = (("enableDistributedReplicatedGraphs", True), ("globalReplicationFactor", 2))
PLACED: Given = (("virtualGraphMode", popart.VirtualGraphMode.Manual),)
PIPELINED: Given = (*PLACED, *ACCUMULATING, ("enablePipelining", True))
MEAN = popart.ReductionType.Mean
DRAWN: Given = (("dotChecks", {"Final"}),)
EXPLICIT: Given = (("useHostCopyOps", True),)
SERIAL = popart.AccumulateOuterFragmentSchedule.Serial
OVERLAPPING = popart.AccumulateOuterFragmentSchedule.OverlapCycleOptimized
PHASES: Given = (("virtualGraphMode", popart.VirtualGraphMode.ExecutionPhases),)
MERGED = popart.MergeVarUpdateType
FOLLOWED = popart.AutomaticLossScalingSettings(True)
HALVES = Setting("halves")
INFERENCE = Setting("inference")
COLLECTIVES = popart.ReplicatedCollectivesSettings(True, True, True, True)

Trial = tuple[Setting, Any]
"""A setting, and the value of the option in another one."""

CHANGING: Mapping[str, Trial] = {
    "accumulationAndReplicationReductionType": (Setting(given=ACCUMULATING), MEAN),
    "accumulationFactor": (Setting(given=ACCUMULATING[:1]), 4),
    "accumulatorTensorLocationSettings": (Setting(given=(*RANKS, *ACCUMULATING)), SHARDED),
    "automaticLossScalingSettings": (HALVES, FOLLOWED),
    "autoRecomputation": (Setting(), popart.RecomputationType.RecomputeAll),
    "compileEngine": (INFERENCE, False),
    "constantWeights": (INFERENCE, False),
    "createImplicitPipeliningFwdOnlyProgram": (Setting(given=PIPELINED), True),
    "disableGradAccumulationTensorStreams": (
        Setting(given=(*ACCUMULATING, ("disableOptimizerStateTensorStreams", True))),
        True,
    ),
    "disableOptimizerStateTensorStreams": (Setting(optimizer="adam"), True),
    "enableDistributedReplicatedGraphs": (Setting(given=RANKS[1:]), True),
    "enableFloatingPointChecks": (Setting("infinite"), True),
    "enableGradientAccumulation": (Setting(given=ACCUMULATING[1:]), True),
    "enableLoadAndOffloadRNGState": (Setting("drawing"), True),
    "enablePipelining": (Setting(given=PLACED), True),
    "enableReplicatedGraphs": (Setting(given=(("replicatedGraphCount", 2),)), True),
    "enableStochasticRounding": (HALVES, True),
    "globalReplicaOffset": (Setting(given=RANKS), 1),
    "globalReplicationFactor": (Setting(given=RANKS[:1]), 2),
    "groupNormStridedChannelGrouping": (INFERENCE, True),
    "meanAccumulationAndReplicationReductionStrategy": (
        Setting(given=(*ACCUMULATING, ("accumulationAndReplicationReductionType", MEAN))),
        popart.MeanReductionStrategy.Running,
    ),
    "optimizerStateTensorLocationSettings": (Setting(given=RANKS), SHARDED),
    "replicatedGraphCount": (Setting(given=(("enableReplicatedGraphs", True),)), 2),
    "syntheticDataMode": (INFERENCE, popart.SyntheticDataMode.Zeros),
    "virtualGraphMode": (Setting(given=PIPELINED[1:]), popart.VirtualGraphMode.Manual),
    "weightTensorLocationSettings": (Setting(given=RANKS), SHARDED),
}
"""For each option that changes the program, a setting where it does."""

REPORTED: Mapping[str, Trial] = {
    "engineOptions": (INFERENCE, {"debug.allowOutOfMemory": "true"}),
    "instrumentWithHardwareCycleCounter": (INFERENCE, True),
    "reportOptions": (INFERENCE, {"showVarStorage": "true"}),
    "tensorLocationSettingsOverride": (
        INFERENCE,
        {"w": popart.TensorLocation(popart.TensorStorage.OffChip)},
    ),
}

SHOWN: Mapping[str, Trial] = {
    "dotChecks": (INFERENCE, {"Final"}),
    "dotOpNames": (Setting("inference", DRAWN), True),
    "finalDotOp": (Setting("inference", DRAWN), 2),
    "firstDotOp": (Setting("inference", DRAWN), 2),
    "logDir": (Setting("inference", DRAWN), "drawn"),
}

ALONE: Mapping[str, Trial] = {
    "accumulateOuterFragmentSettings": (
        Setting(given=PLACED),
        popart.AccumulateOuterFragmentSettings(OVERLAPPING, [0]),
    ),
    "activationTensorLocationSettings": (Setting(), OFF_CHIP),
    "batchSerializationSettings": (Setting(), popart.BatchSerializationSettings(2)),
    "decomposeGradSum": (Setting(), True),
    "delayVarUpdates": (Setting(), False),
    "enableExplicitIR": (INFERENCE, True),
    "enableExplicitMainLoops": (Setting("inference", EXPLICIT), True),
    "enableFullyConnectedPass": (Setting(), False),
    "enableMergeExchange": (Setting(given=PLACED), False),
    "enableOutlining": (Setting(), False),
    "ensureFp32LossScaleTensor": (HALVES, True),
    "executionPhaseSettings": (Setting(given=PHASES), popart.ExecutionPhaseSettings(2)),
    "explicitRecomputation": (Setting(), True),
    "kahnTieBreaker": (Setting(), "fifo"),
    "mergeVarUpdate": (Setting(), MERGED.All),
    "mergeVarUpdateMemThreshold": (
        Setting(given=(("mergeVarUpdate", MERGED.AutoLoose),)),
        1,
    ),
    "numIOTiles": (Setting(given=PLACED), 32),
    "outlineThreshold": (Setting(), -1.0),
    "partialsTypeMatMuls": (INFERENCE, "half"),
    "replicatedCollectivesSettings": (
        Setting(
            given=(
                ("enableReplicatedGraphs", True),
                ("replicatedGraphCount", 2),
                (
                    "accumulateOuterFragmentSettings",
                    popart.AccumulateOuterFragmentSettings(OVERLAPPING),
                ),
            )
        ),
        COLLECTIVES,
    ),
    "scheduleNonWeightUpdateGradientConsumersEarly": (
        Setting("halves", (("automaticLossScalingSettings", FOLLOWED),)),
        True,
    ),
    "swapLimitScheduler": (Setting(), 0),
    "timeLimitScheduler": (Setting(), 0.0),
    "useHostCopyOps": (INFERENCE, True),
}
"""Options without effect, each with the options that it requires."""

IGNORED: Mapping[str, Any] = {
    "_enableRngStateManagement": True,
    "bufferingDepthMap": {"x": 2},
    "cachePath": "elsewhere",
    "convolutionOptions": {"availableMemoryProportion": "0.3"},
    "customCodeletCompileFlags": "-g",
    "defaultBufferingDepth": 2,
    "enableConstantFoldingOfMultipleConsumers": False,
    "enableEfficientOverlapIOTopoCons": True,
    "enableEngineCaching": True,
    "enableInplaceAmbiguityChecking": True,
    "enableNonStableSoftmax": True,
    "enableOutliningCopyCostPruning": False,
    "enablePrefetchDatastreams": False,
    "enableStableNorm": True,
    "enableSupportedDataTypeCasting": False,
    "enableVariablesCaching": False,
    "experimentalSettings": popart.ExperimentalSettings(),
    "exportPoplarComputationGraph": True,
    "exportPoplarVertexGraph": True,
    "gclOptions": {"maxBytesPerTile": "100"},
    "groupHostSync": True,
    "hardwareInstrumentations": {popart.Instrumentation.Inner},
    "lstmOptions": {"recomputationMode": "full"},
    "matmulOptions": {"availableMemoryProportion": "0.3"},
    "opxAliasChecking": True,
    "opxModifyChecking": True,
    "outlineSequenceBreakCost": 1.0,
    "rearrangeAnchorsOnHost": False,
    "rearrangeStreamsOnHost": False,
    "separateCallOpPdfs": False,
    "serializedPoprithmsShiftGraphsDir": "elsewhere",
    "stashAllTensorsInferencePipeline": True,
    "strictOpVersions": False,
    "subgraphCopyingStrategy": popart.SubgraphCopyingStrategy.JustInTime,
    "throwIfLog2ScaleTensorNotInRange": False,
    "transitiveClosureOptimizationThreshold": 0,
    "updatableNamedBuffers": ["w"],
    "useLoopCandidateCreator": True,
}
"""Compatible values of options without effect, which are not the defaults."""
ALIASES = {
    "defaultPrefetchBufferingDepth",
    "prefetchBufferingDepthMap",
    "serializedPoprithmsAnnealGraphsDir",
}
"""Other names of options."""
IN_OTHER_MODELS = {"getGlobalReplicationFactor", "virtualGraphSplitRatios"}
"""A name of another option, and one that needs nodes without places (`test_pipelining.py`)."""
ELSEWHERE = {"aliasZeroCopy"}
"""Options that other tests cover."""


def runs(setting: Setting) -> bool:
    """Whether the steps run: two settings that fail alike would compare equal, too."""
    return not re.match(r"\w+([Ee]rror|exception): ", observed(setting)["results"])


def said(effect: Effect) -> set[str]:
    return {one.name for one in options() if one.effect is effect}


def test_every_option_has_a_trial() -> None:
    assert said(Effect.PROGRAM) == CHANGING.keys() | IN_OTHER_MODELS
    assert said(Effect.REPORTS) == REPORTED.keys()
    assert said(Effect.IR) == SHOWN.keys()
    assert said(Effect.NONE) == ALONE.keys() | IGNORED.keys() | ALIASES | ELSEWHERE


@pytest.mark.parametrize("name", CHANGING)
def test_an_option_changes_the_program(name: str) -> None:
    plain, value = CHANGING[name]
    changed = plain.with_option(name, value)
    assert differing(plain, changed, "program") or differing(plain, changed, "results")


@pytest.mark.parametrize("name", REPORTED)
def test_an_option_changes_reports_only(name: str) -> None:
    plain, value = REPORTED[name]
    changed = plain.with_option(name, value)
    assert runs(plain) and differing(plain, changed, *RUNS) == set()
    if name != "engineOptions":  # `test_ipu_model.py` shows the effect of these.
        assert differing(plain, changed, "report")


@pytest.mark.parametrize("name", SHOWN)
def test_an_option_is_shown_in_the_ir_only(name: str) -> None:
    plain, value = SHOWN[name]
    changed = plain.with_option(name, value)
    assert runs(plain) and differing(plain, changed, *RUNS) == set()
    assert name == "dotOpNames" or differing(
        plain, changed, "ir"
    )  # The nodes of this model have no names.


@pytest.mark.parametrize("name", ALONE)
def test_an_option_without_effect_changes_nothing(name: str) -> None:
    plain, value = ALONE[name]
    changed = plain.with_option(name, value)
    assert runs(plain) and differing(plain, changed, "ir", "report", *RUNS) == set()


@pytest.mark.parametrize("model", ["training", "inference"])
def test_options_without_effect_change_nothing(model: str) -> None:
    """All options without effect, set at once."""
    plain = Setting(model)
    changed = replace(plain, given=tuple(IGNORED.items()))
    assert runs(plain) and differing(plain, changed, "ir", "report", *RUNS) == set()


def test_patterns_have_the_effects_of_the_table() -> None:
    """Only the patterns of the class loss change the program, if both are off."""
    assert {one.name for one in patterns()} == PATTERNS
    assert {one.name for one in patterns() if one.effect is Effect.PROGRAM} == FUSING
    plain = Setting()
    assert differing(plain, replace(plain, off=FUSING), "program")
    others = frozenset(one.name for one in patterns() if one.effect is not Effect.PROGRAM)
    for off in (others, *(others | {one} for one in FUSING)):
        assert not differing(plain, replace(plain, off=off), *RUNS)
    silent = frozenset(one.name for one in patterns() if one.effect is Effect.NONE)
    assert not differing(plain, replace(plain, off=silent), "ir", *RUNS)
