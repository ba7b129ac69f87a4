"""Tests that the suites of other releases of ONNX run from folders and from wheels."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import OptionalProto, TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from popgraph.backend import ReferenceBackend
from popgraph.cli import app
from popgraph.conformance.cases import CORRECTIONS, corrections_of
from popgraph.conformance.log import Log
from popgraph.conformance.outcome import Status, outcome
from popgraph.conformance.suites import MAX_BYTES, opened
from popgraph.support.errors import ModelError

DATA = Path("onnx/backend/test/data")
X = np.array([-1, 0, 2], np.float32)


def unary(operator: str) -> onnx.ModelProto:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def write_test(folder: Path, operator: str, wanted: np.ndarray) -> None:
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(unary(operator), folder / "model.onnx")
    for name, value in {"input_0": X, "output_0": wanted}.items():
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())


def suite(folder: Path, *, relu: np.ndarray | None = None) -> Path:
    """A suite of two node tests, a test with a download, and a model that several tests name."""
    write_test(folder / DATA / "node" / "test_neg", "Neg", -X)
    write_test(
        folder / DATA / "node" / "test_relu", "Relu", np.maximum(X, 0) if relu is None else relu
    )
    say(folder, "test_far", {"model_name": "far", "url": "https://host/far.tar.gz"})
    light = folder / DATA / "light"
    light.mkdir()
    onnx.save(unary("Exp"), light / "light_near.onnx")
    wanted = np.exp(np.arange(3, dtype=np.float32) / 3)
    (light / "light_near_output_0.pb").write_bytes(
        numpy_helper.from_array(wanted).SerializeToString()
    )
    url = f"{DATA.as_posix()}/light/light_near.onnx"
    say(folder, "test_near", {"model_name": "near", "url": url, "rtol": 1e-5, "atol": 0})
    return folder


def say(folder: Path, name: str, said: object) -> None:
    place = folder / DATA / "real" / name
    place.mkdir(parents=True)
    (place / "data.json").write_text(json.dumps(said))


def wheel(folder: Path, version: str) -> Path:
    """A wheel of the folder, with a module that must not be unpacked."""
    place = folder.parent / f"onnx-{version}-cp39-cp39-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder))
        archive.writestr("onnx/__init__.py", "raise RuntimeError")
    return place


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "wheel"])
def test_the_tests_of_a_suite_run(tmp_path: Path, zipped: bool) -> None:
    place = suite(tmp_path / "my")
    with opened([wheel(place, "1.0.0") if zipped else place]) as cases:
        found = {each.name: outcome(each, ReferenceBackend) for each in cases}
    assert {name: each.status for name, each in found.items()} == {
        "test_neg": Status.PASSED,
        "test_relu": Status.PASSED,
        "test_near": Status.PASSED,
        "test_far": Status.SKIPPED,
    }
    assert found["test_neg"].suites == (("onnx-1.0.0",) if zipped else ("my",))
    assert (found["test_neg"].kind, found["test_near"].kind) == ("node", "real")


def test_wheels_are_unpacked_safely_and_removed(tmp_path: Path) -> None:
    place = wheel(suite(tmp_path / "in" / "my"), "1.0.0")
    with zipfile.ZipFile(place, "a") as archive:
        archive.writestr("../../test_x/outside.pb", b"")
    with opened([place]) as cases:
        files = [file for case in cases for file in case.files()]
        root = cases[0].data.parents[3]
        assert files and all(file.is_relative_to(root) for file in files)
        assert not (root / "onnx" / "__init__.py").exists()
        assert not (tmp_path / "test_x").exists() and not (root.parent / "test_x").exists()
    assert not root.exists()


def test_a_test_of_several_suites_runs_once_and_counts_for_each(tmp_path: Path) -> None:
    wrong = np.array([5, 5, 5], np.float32)
    first, second = suite(tmp_path / "v1.9"), suite(tmp_path / "v1.10", relu=wrong)
    with opened([second, first]) as cases:
        suites = {(case.name, case.suites) for case in cases}
    both = ("v1.10", "v1.9")
    assert {each for each in suites if each[1] == both} == {
        ("test_neg", both),
        ("test_near", both),
        ("test_far", both),
    }
    ran = CliRunner().invoke(
        app,
        [
            *("conformance", "--backend", "reference", "--jobs", "1", "--list"),
            *("--suite", str(second), "--suite", str(first)),
            *("--json", str(tmp_path / "found.json")),
        ],
    )
    assert ran.exit_code == 1, ran.output
    assert "suite  tests  passed  wrong  failed  refused  skipped" in ran.stdout
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert ["v1.9", "4", "3", "0", "0", "0", "1"] in rows
    assert ["v1.10", "4", "2", "1", "0", "0", "1"] in rows
    assert rows.index(["v1.9", "4", "3", "0", "0", "0", "1"]) < rows.index(
        ["v1.10", "4", "2", "1", "0", "0", "1"]
    )
    assert ["all", "8", "5", "1", "0", "0", "2"] in rows
    assert ["v1.10", "test_relu", "other", "wrong"] in [row[:4] for row in rows]
    found = json.loads((tmp_path / "found.json").read_text())["backends"]["reference"]
    assert found["counts"]["all"] == {"passed": 5, "wrong": 1, "skipped": 2}
    assert [test["suites"] for test in found["tests"] if test["name"] == "test_neg"] == [[*both]]


def test_a_damaged_model_fails_alone(tmp_path: Path) -> None:
    place = suite(tmp_path / "my")
    (place / DATA / "node" / "test_neg" / "model.onnx").write_bytes(b"\xff\xff no model")
    with opened([place]) as cases:
        found = {each.name: outcome(each, ReferenceBackend).status for each in cases}
    assert (found["test_neg"], found["test_relu"]) == (Status.FAILED, Status.PASSED)


def test_tests_that_onnx_corrected_are_skipped_in_old_releases(tmp_path: Path) -> None:
    folder = tmp_path / "my"
    write_test(folder / DATA / "node" / "test_unique_not_sorted_without_axis", "Neg", -X)
    with opened([wheel(folder, "1.6.0")]) as cases:
        (skipped,) = (outcome(each, ReferenceBackend) for each in cases)
    assert skipped.status == Status.SKIPPED
    assert skipped.reason == (
        "it expects sorted elements of a node that is not to sort; onnx 1.8.1 has another one"
    )
    with opened([wheel(folder, "1.8.1")]) as cases:
        (ran,) = (outcome(each, ReferenceBackend) for each in cases)
    assert ran.status == Status.PASSED


def test_corrections_apply_to_older_releases_only() -> None:
    """Corrections apply before the release that fixed a test, and not from there on."""
    for each in CORRECTIONS:
        numbers = [tuple(map(int, one.split("."))) for one in (*each.releases, each.corrected)]
        assert numbers == sorted(set(numbers)), each
    assert corrections_of("test_attention_3d_gqa", ["onnx-1.18.0"])
    for name in ("test_attention_3d_gqa_expanded", "test_attention_4d", "test_attention_4d_scaled"):
        assert not corrections_of(name, ["onnx-1.18.0"])
    for suites in ([], ["onnx-1.20.1"], ["my"]):
        assert not corrections_of("test_attention_3d_gqa", suites)


def test_old_encodings_of_bfloat16_and_optionals_are_read(tmp_path: Path) -> None:
    """Old releases wrote bfloat16 as uint16, and absent optionals as tensors without a type."""
    place = tmp_path / "my" / "node" / "test_cast"
    data = place / "test_data_set_0"
    data.mkdir(parents=True)
    made = [
        helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("has", TensorProto.BOOL, []),
    ]
    of_tensor = helper.make_tensor_type_proto(TensorProto.INT32, [])
    optional = helper.make_value_info("o", helper.make_optional_type_proto(of_tensor))
    nodes = [
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
    ]
    graph = helper.make_graph(nodes, "g", [made[0], optional], made[1:])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), place / "model.onnx")
    absent = OptionalProto(elem_type=OptionalProto.TENSOR, tensor_value=TensorProto())
    bits = numpy_helper.from_array(np.array([0x3F80, 0xC000], np.uint16))
    for name, message in {
        "input_0": bits,
        "input_1": absent,
        "output_0": numpy_helper.from_array(np.array([1, -2], np.float32)),
        "output_1": numpy_helper.from_array(np.array(False)),
    }.items():
        (data / f"{name}.pb").write_bytes(message.SerializeToString())
    with opened([tmp_path / "my"]) as cases:
        found = outcome(cases[0], ReferenceBackend)
    assert (found.status, found.reason) == (Status.PASSED, "")


def test_outputs_have_bounds_of_their_own(tmp_path: Path) -> None:
    """A list of bounds replaces one for all outputs; null leaves values out."""
    place = tmp_path / "my" / "node" / "test_neg"
    write_test(place, "Neg", -X + np.array([0, 0, 0.25], np.float32))

    def statuses(*atols: object) -> list[Status]:
        found = []
        for atol in atols:
            (place / "data.json").write_text(json.dumps({"rtol": 0, "atol": atol}))
            with opened([tmp_path / "my"]) as cases:
                found.append(outcome(cases[0], ReferenceBackend).status)
        return found

    passed, wrong = Status.PASSED, Status.WRONG
    assert statuses(0.3, [0.3], [None]) == [passed] * 3
    assert statuses(0.2, [0.2], [0.3, 0.3]) == [wrong] * 3
    other = numpy_helper.from_array(X.astype(np.float64))
    (place / "test_data_set_0" / "output_0.pb").write_bytes(other.SerializeToString())
    assert statuses([None]) == [wrong]
    for broken in ("little", ["little"], {}):
        with pytest.raises(ModelError, match="a tolerance that is not a number"):
            statuses(broken)


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    """Tests in a log do not run again, and count."""
    place, log = suite(tmp_path / "my"), tmp_path / "log.jsonl"

    def rows(*arguments: str) -> list[list[str]]:
        ran = CliRunner().invoke(
            app,
            [
                *("conformance", "--backend", "reference", "--jobs", "1"),
                *("--suite", str(place), "--log", str(log), *arguments),
            ],
        )
        assert ran.exit_code == 0, ran.output
        return [line.split() for line in ran.stdout.splitlines()]

    assert ["all", "1", "1", "0", "0", "0", "0"] in rows("--only", "neg")
    (first,) = log.read_text().splitlines()
    changed = json.loads(first) | {"status": "refused", "reason": "an earlier reason"}
    log.write_text(json.dumps(changed) + "\n")
    found = rows()
    assert ["all", "4", "2", "0", "0", "1", "1"] in found
    assert ["1", "refused", "an", "earlier", "reason"] in found
    names = [json.loads(line)["name"] for line in log.read_text().splitlines()]
    assert sorted(names) == ["test_far", "test_near", "test_neg", "test_relu"]
    assert found == rows()
    with opened([place]) as cases:
        assert Log(log, "c").left(cases) == cases
        assert not Log(log, "reference").left(cases)
    for broken in ("no JSON", "[]", '{"backend": "c"}'):
        log.write_text(f"{json.dumps(changed)}\n{broken}\n")
        with pytest.raises(ModelError, match=r"not an outcome of a test\n.*log.jsonl, line 2"):
            Log(log, "c")


def test_folders_without_a_suite_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.whl").write_text("no archive")
    good = wheel(suite(tmp_path / "my"), "1.0.0")
    for name, what in {
        "absent": "no such file or folder",
        "empty": "it contains no model tests",
        "text.whl": "it cannot be unpacked: File is not a zip file",
    }.items():
        with pytest.raises(ModelError, match=what), opened([tmp_path / name]):
            pass
    monkeypatch.setattr("popgraph.conformance.suites.MAX_BYTES", 10)
    with pytest.raises(ModelError, match="its tests are larger than 10 bytes"), opened([good]):
        pass
    assert MAX_BYTES > 10
    (tmp_path / "my" / DATA / "real" / "test_far" / "data.json").write_text("[1")
    with pytest.raises(ModelError, match="not a JSON object"), opened([tmp_path / "my"]):
        pass
