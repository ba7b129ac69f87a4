"""Tests that programs of each era of PopONNX and PopART keep their meaning."""

from __future__ import annotations

from dataclasses import is_dataclass
from inspect import isclass, isfunction, signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popgraph import compat
from popgraph import popart as popart
from popgraph.compat.sources import roots_of_tests, texts_of
from popgraph.popart.eras.era import ERAS, Era, era_of_program
from popgraph.popart.exceptions import popart_exception
from tests.commanded import run_command
from tests.popart.era_modules import (
    OLD,
    POPONNX,
    by_name,
    module_of,
    names_taken_away,
    run_once,
    weight_by_input,
)

__all__ = ["names_taken_away"]
pytestmark = pytest.mark.usefixtures("names_taken_away")


@pytest.mark.parametrize("era", OLD, **by_name)
def test_training_as_each_era_writes_it(era: Era) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    prefix = old.reservedGradientPrefix()
    flow = old.DataFlow(1, {prefix + w: old.AnchorReturnType("ALL")})
    given: dict[str, Any] = {
        "dataFeed": flow,
        "dataFlow": flow,
        "loss": [old.L1Loss(y, "loss", 0.5)],
        "losses": [old.L1Loss(y, "loss", 0.5)],
        "optimizer": old.SGD(learning_rate=0.1, weight_decay=0.0),
        "deviceInfo": old.DeviceManager().createCpuDevice(),
        "inputShapeInfo": old.InputShapeInfo(),
        "passes": old.Patterns(["PostNRepl"]),
        "patterns": old.Patterns(["PostNRepl"]),
        "userOptions": old.SessionOptionsCore(),
    }
    session = old.TrainingSession(builder.getModelProto(), *(given[one] for one in era.training))
    data = np.float32([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_allclose(run_once(old, session, {x: data})[prefix + w], data / 2)


@pytest.mark.parametrize("era", OLD, **by_name)
def test_names_of_tensors_and_gradients(era: Era) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    assert (x, w, y) == (("1", "2", "3") if era.numbered else ("input", "init_input", "Mul:0"))
    assert (
        old.reservedGradientPrefix()
        == {
            "2018-12": "d__",
            "2019-03": "d__",
            "2019-07": "D___",
            "2020-05": "Gradient___",
        }[era.name]
    )
    inner = builder.createSubgraphBuilder()
    assert inner.addInputTensor(old.TensorInfo("FLOAT", [1])) not in {x, w, y}
    assert old.Builder().aiOnnx.version == era.opset


def test_a_tensor_may_begin_like_a_gradient() -> None:
    old = module_of(ERAS[1])
    builder = old.Builder()
    x = builder.addInputTensor("FLOAT", [2], "d__x")
    y = builder.aiOnnx.neg([x])
    session = old.InferenceSession(
        builder.getModelProto(),
        old.DataFlow(1, {x: old.AnchorReturnType("ALL"), y: old.AnchorReturnType("ALL")}),
    )
    found = run_once(old, session, {x: np.float32([1, 2])})
    assert found[x].tolist() == [1, 2]
    assert found[y].tolist() == [-1, -2]


@pytest.mark.parametrize("era", OLD, **by_name)
def test_the_mean_of_sizes_is_by_sample_and_its_gradient_by_element(era: Era) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    wanted = old.reservedGradientPrefix() + w
    named = {"lambda": 0.5, "reduction": old.ReductionType.MEAN}
    session = old.TrainingSession(
        builder.getModelProto(),
        dataFeed=old.DataFlow(1, dict.fromkeys([wanted, "loss"], old.AnchorReturnType("ALL"))),
        losses=[old.L1Loss(y, "loss", **named)],
        optimizer=old.ConstSGD(0.1),
    )
    data = np.float32([[1, 2, 3], [4, 5, 6]])
    found = run_once(old, session, {x: data})
    np.testing.assert_allclose(found["loss"], 0.5 * (2 * data).sum(1) / 2)
    np.testing.assert_allclose(found[wanted], 0.5 * data / 6, rtol=1e-6)


@pytest.mark.parametrize("era", POPONNX, **by_name)
@pytest.mark.parametrize(("dtype", "shape"), [("BOOL", [2]), ("INT32", [2]), ("FLOAT", [])])
def test_an_inference_may_have_a_loss(era: Era, dtype: str, shape: list[int]) -> None:
    old = module_of(era)
    builder = old.Builder()
    x = builder.addInputTensor(old.TensorInfo(dtype, shape))
    y = builder.aiOnnx.identity([x])
    loss = old.L1Loss(y, "loss", 0.1)
    loss.virtualGraph(1)
    flow = old.DataFlow(1, {y: old.AnchorReturnType("ALL")})
    session = old.InferenceSession(builder.getModelProto(), flow, losses=[loss])
    data = np.ones(shape, old.TensorInfo(dtype, shape).data_type_lcase())
    np.testing.assert_array_equal(run_once(old, session, {x: data})[y], data)


def test_an_anchored_loss_is_computed_by_an_inference() -> None:
    old = module_of(ERAS[1])
    builder, x, _, y = weight_by_input(old)
    flow = old.DataFlow(1, {"loss": old.AnchorReturnType("ALL")})
    session = old.InferenceSession(builder.getModelProto(), flow, [old.L1Loss(y, "loss", 0.5)])
    found = run_once(old, session, {x: np.ones((2, 3), np.float32)})
    np.testing.assert_allclose(found["loss"], [3, 3])


@pytest.mark.parametrize("era", OLD, **by_name)
def test_old_names_of_options_patterns_and_numbers(era: Era) -> None:
    old = module_of(era)
    options = old.SessionOptionsCore()
    options.enableVirtualGraphs = True
    assert options.virtualGraphMode is old.VirtualGraphMode.Manual
    options.enableAutoRecomputation = True
    assert options.autoRecomputation is old.RecomputationType.Standard
    options.exportDot = True
    assert options.exportDot
    assert not options.enableRecomputation
    with pytest.raises(AttributeError):
        options.nonsense = 1
    with pytest.raises(AttributeError):
        _ = options.nonsense
    assert getattr(old.RecomputationType, "None") is old.RecomputationType.NoRecompute
    none = old.Patterns(old.PatternsLevel.NONE)
    assert not none.PostNRepl
    some = old.Patterns([old.PreAliasPatternType.POSTNREPL, "SplitConvBias"])
    assert some.PostNRepl
    assert not some.OpToIdentity
    some.SplitConvBias = False
    assert not some.SplitConvBias
    assert old.Patterns(old.PatternsLevel.ALL).isPatternEnabled("SplitGather")
    with pytest.raises(popart_exception, match="Unknown pattern nonsense"):
        old.Patterns(["nonsense"])
    assert (old.SGD(0.25).learnRate(), old.ConstSGD(0.25, 0.5).weightDecay()) == (0.25, 0.5)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = old.nonsense


@pytest.mark.parametrize("era", OLD, **by_name)
def test_errors_of_later_versions(era: Era) -> None:
    """Errors of later versions: axes out of range, labels of another shape, outputs of losses."""
    old = module_of(era)
    builder = old.Builder()
    x = builder.addInputTensor(old.TensorInfo("FLOAT", [2, 1, 3]))
    labels = builder.addInputTensor(old.TensorInfo("INT32", [2]))
    rows = builder.aiOnnx.softmax([x], axis=2)
    total = builder.aiOnnx.reducesum([labels], [0, 1], 0)
    loss = old.NllLoss(rows, labels, "loss")
    builder.addOutputTensor(loss.output(0))
    flow = old.DataFlow(
        1, {"loss": old.AnchorReturnType("ALL"), total: old.AnchorReturnType("ALL")}
    )
    session = old.InferenceSession(
        builder.getModelProto(),
        flow,
        losses=[loss],
        deviceInfo=old.DeviceManager().createCpuDevice(),
    )
    given = {x: np.zeros((2, 1, 3), np.float32), labels: np.array([0, 2], np.int32)}
    found = run_once(old, session, given)
    assert np.allclose(found["loss"], [np.log(3)] * 2)
    assert found[total] == 2


@pytest.mark.parametrize("era", OLD, **by_name)
def test_an_ipu_model_has_all_tiles(era: Era) -> None:
    old = module_of(era)
    devices = old.DeviceManager()
    assert devices.createIpuModelDevice({}).tilesPerIPU == 1216
    chosen = old.DeviceSelectionCriterion.Random  # An argument of a later era.
    assert devices.acquireAvailableDevice(2, selectionCriterion=chosen).numIpus == 2
    assert devices.createIpuModelDevice({"tilesPerIPU": 8}).tilesPerIPU == 8


def test_old_eras_take_what_later_ones_do() -> None:
    """Programs written between two eras use the older module, with names of the later one."""
    old = module_of(ERAS[-2])
    for name in old.__all__:
        then, today = getattr(old, name), getattr(popart, name, None)
        if not (isclass(then) and isclass(today)) or is_dataclass(today) or then is today:
            continue
        for method in ("__init__", *(one for one in dir(today) if not one.startswith("_"))):
            known, taken = getattr(today, method), getattr(then, method)
            if isfunction(known) and isfunction(taken) and known is not taken:
                parameters = signature(taken).parameters.values()
                if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                    missing = signature(known).parameters.keys() - signature(taken).parameters
                    assert not missing, f"{name}.{method}"


def test_training_needs_no_anchors() -> None:
    old = module_of(ERAS[1])
    builder, x, _, y = weight_by_input(old)
    session = old.TrainingSession(
        builder.getModelProto(), old.DataFlow(1, {}), [old.L1Loss(y, "loss", 0.5)], old.SGD(0.1)
    )
    assert run_once(old, session, {x: np.ones((2, 3), np.float32)}) == {}


def test_the_session_of_2018_has_the_names_of_2018() -> None:
    old = module_of(ERAS[0])
    builder = old.Builder()
    x = builder.addInputTensor(old.TensorInfo("FLOAT", [2, 3]))
    w = builder.addInitializedInputTensor(np.ones((2, 3), np.float32))
    y = builder.mul([x, w])
    assert y == "3"
    flow = old.DataFlow(2, 2, ["d__2", y], old.AnchorReturnType.ALL)
    losses = [old.L1Loss(y, "loss", 1.0)]
    session = old.Session(builder.getModelProto(), flow, losses, old.ConstSGD(0.0625))
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    session.train(old.PyStepIO({x: data}, anchors))
    np.testing.assert_allclose(anchors["d__2"], data)


def test_an_unknown_era_is_an_error() -> None:
    with pytest.raises(popart_exception, match="unknown era '2017'") as raised:
        compat.enable("2017")
    assert "2018-12, 2019-03, 2019-07, 2020-05, last" in str(raised.value)


@pytest.mark.parametrize(
    ("program", "era"),
    [
        ("import poponnx as p\np.Session('m', p.DataFlow(1, {}))", "2018-12"),
        ("import poponnx\noptions.enableAutoRecomputation = True", "2019-03"),
        ("import poponnx\npoponnx.TrainingSession(deviceInfo=d)", "2019-07"),
        ("from popart import TrainingSession\nTrainingSession(losses=[])", "2020-05"),
        ("import popart\noptions.enableGroupedMatmuls = False", "2020-05"),
        ("import popart\npopart.TrainingSession('m', loss=l)", None),
        ("import poponnx\npoponnx.InferenceSession('m', f)", None),
        ("import torch\nSession(losses=[])", None),
        ("this is no Python", None),
    ],
)
def test_the_era_of_a_program_is_detected(program: str, era: str | None) -> None:
    found = era_of_program(program)
    assert (found and found.name) == era


def test_local_modules_help_to_detect_the_era(tmp_path: Path) -> None:
    files = {
        "train.py": "import sys\nsys.path.insert(0, 'TOP/shared')\nimport model, numpy, runner",
        "model/__init__.py": "from .layers import attention",
        "model/layers.py": "from . import nothing\nimport train",
        "shared/runner.py": "import popart\npopart.TrainingSession(losses=[])",
        "tests/conftest.py": "import runner",
        "tests/test_it.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("TOP", str(tmp_path)))
    texts = list(texts_of([tmp_path / "train.py"], []))
    assert len(texts) == 4
    found = [one.name for one in map(era_of_program, texts) if one is not None]
    assert found == ["2020-05"]
    roots = roots_of_tests(tmp_path / "tests" / "test_it.py", tmp_path)
    assert files["shared/runner.py"] in texts_of(roots, [tmp_path / "shared"])


SAYS = "import poponnx; print(poponnx.Builder().addInputTensor('FLOAT', [1]))"


@pytest.mark.parametrize(
    ("options", "program", "said"),
    [
        ([], SAYS, "input"),
        (["--era", "2018-12"], SAYS, "1"),
        ([], f"{SAYS}; poponnx.Session", "1"),
        (["--era", "2019-03"], f"{SAYS}; poponnx.Session", "input"),
        ([], f"{SAYS}; poponnx.Session", "1"),
    ],
)
@pytest.mark.parametrize("way", ["script", "code"])
def test_the_command_takes_an_era(
    options: list[str],
    program: str,
    said: str,
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "program.py"
    script.write_text(program)
    run = ["-c", program] if way == "code" else [str(script)]
    run_command(monkeypatch, *options, *run)
    assert capsys.readouterr().out == f"{said}\n"


def test_the_command_refuses_an_unknown_era(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="2018-12"):
        run_command(monkeypatch, "--era", "2017", "-c", "pass")


PARENT = (
    "import poponnx, subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)"
)


@pytest.mark.parametrize(
    ("options", "parent", "child", "said"),
    [
        ([], PARENT, f"{SAYS}; poponnx.Session", "1"),
        ([], f"{PARENT}; poponnx.Session", SAYS, "1"),
        (["--era", "2019-03"], PARENT, f"{SAYS}; poponnx.Session", "input"),
    ],
)
def test_a_process_of_a_program_has_the_module_as_it_uses_it(
    options: list[str],
    parent: str,
    child: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("child.py").write_text(child)
    run_command(monkeypatch, *options, "-c", parent, "child.py")
    assert capfd.readouterr().out == f"{said}\n"


def test_the_documentation_has_a_row_for_every_era() -> None:
    page = (Path(__file__).parents[2] / "docs/coming-from-popart.md").read_text()
    for era in ERAS:
        names = "`1`, `2`, ..." if era.numbered else "by operator"
        asked = "required" if era.mandatory else "not required"
        row = (
            f"| {era.name} | `{era.module}` | {era.opset} | `{era.gradient}w` | {names} | {asked} |"
        )
        assert row in page
