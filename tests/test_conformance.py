"""Tests runs of ONNX's test suite: outcomes, counts, and robustness against crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.backend.test.case.test_case import TestCase
from typer.testing import CliRunner

from popgraph.backend import CBackend, ReferenceBackend
from popgraph.cli import app
from popgraph.conformance.cases import KINDS, Case, all_cases, cases_matching
from popgraph.conformance.groups import GROUPS, group_of
from popgraph.conformance.outcome import Computed, Status, differences, outcome
from popgraph.conformance.report import counts, group_rows, host_lines
from popgraph.conformance.workers import outcomes
from tests.sampling import share

LONG = 300.0
"""A timeout that no case reaches."""


def case(name: str) -> Case:
    (found,) = cases_matching(f"^{name}$")
    return found


class Scripted(ReferenceBackend):
    """A backend that crashes, hangs, raises or errs for some operators."""

    @classmethod
    def prepare(cls, model: ModelProto, *arguments: Any, **keywords: Any) -> Any:
        match model.graph.node[0].op_type:
            case "Abs":
                os.kill(os.getpid(), signal.SIGKILL)
            case "Exp":
                signal.pause()
            case "Neg":
                raise KeyError("neg")
            case "Relu":
                model = ModelProto.FromString(model.SerializeToString())
                model.graph.node[0].op_type = "Sigmoid"
        return super().prepare(model, *arguments, **keywords)


def test_all_kinds_of_cases_are_collected() -> None:
    found = all_cases()
    assert {each.kind for each in found} == set(KINDS)
    assert len(found) > 2000
    assert len({each.name for each in found}) == len(found)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("test_ai_onnx_ml_binarizer", "ml"),
        ("test_adam", "training"),
        ("test_string_concat", "strings"),
        ("test_identity_opt", "sequences and optionals"),
        ("test_loop11", "control flow"),
        ("test_lstm_defaults", "recurrent"),
        ("test_nonzero_example", "sizes that data decide"),
        ("test_qlinearconv", "quantization"),
        ("test_reshape_allowzero_reordered", "structure fed at run time"),
        ("test_top_k", "structure fed at run time"),
        ("test_attention_3d", "other"),
        ("test_operator_view", "other"),
    ],
)
def test_cases_have_groups(name: str, group: str) -> None:
    assert group in GROUPS
    assert group_of(case(name).model) == group


@pytest.mark.usefixtures("with_a_mystery")
def test_cases_pass_or_are_refused_with_the_reason() -> None:
    assert outcome(case("test_relu"), ReferenceBackend).status == Status.PASSED
    fed = outcome(case("test_reshape_allowzero_reordered"), ReferenceBackend)
    assert (fed.status, fed.group) == (Status.PASSED, "structure fed at run time")
    refused = outcome(case(REFUSED), ReferenceBackend)
    assert (refused.status, refused.group) == (Status.REFUSED, "other")
    assert refused.reason == REFUSAL


@pytest.mark.parametrize(
    "name", ["test_operator_chunk", "test_softmax_lastdim", "test_gradient_of_add"]
)
def test_cases_that_are_files_run(name: str) -> None:
    found = outcome(case(name), ReferenceBackend)
    assert found.status == Status.PASSED


def test_cases_that_cannot_run_are_skipped() -> None:
    download = TestCase("test_x", "x", "https://host/x.tar.gz", None, None, None, "real", 0, 0)
    found = outcome(Case("real", download), ReferenceBackend)
    assert (found.status, found.group) == (Status.SKIPPED, "downloads")
    assert found.reason == "its model is a download (https://host/x.tar.gz)"
    for name in ("test_bernoulli_seed", "test_training_dropout", "test_training_dropout_default"):
        skipped = outcome(case(name), ReferenceBackend)
        assert skipped.status == Status.SKIPPED and "random" in skipped.reason
    assert not case("test_training_dropout_zero_ratio").why_skipped()


def test_wrong_answers_and_crashes_are_reported() -> None:
    """After a worker crashes, another one runs the remaining cases."""
    cases = [case(f"test_{name}") for name in ("abs", "neg", "relu", "sign", "sqrt")]
    found = {each.name: each for each in outcomes(cases, Scripted, 2, LONG)}
    assert {name: each.status for name, each in found.items()} == {
        "test_abs": Status.FAILED,
        "test_neg": Status.FAILED,
        "test_relu": Status.WRONG,
        "test_sign": Status.PASSED,
        "test_sqrt": Status.PASSED,
    }
    assert found["test_abs"].reason == "the process ended (SIGKILL)"
    assert found["test_neg"].reason == "KeyError: 'neg'"
    assert "Mismatched elements" in found["test_relu"].reason


MIXED = """
<ir_version: 9, opset_import: ["" : 18]> graph (float[4] x) => (float[4] y, float[4] z)
{
    y = Exp (x)
    words = Cast <to = 8> (x)
    z = Cast <to = 1> (words)
}
"""
BRANCH = """
<ir_version: 9, opset_import: ["" : 18]> graph (bool take, float[4] x) => (float[4] z)
{
    z = If (take) <
        then_branch = g () => (float[4] s) { u = Cast <to = 8> (x) s = Cast <to = 1> (u) },
        else_branch = h () => (float[4] t) { v = Cast <to = 8> (x) t = Cast <to = 1> (v) }
    >
}
"""
WORDS = '<ir_version: 9, opset_import: ["" : 18]> graph (float[4] x) => (float[4] z)'
WRITTEN = "{ words = Cast <to = 8> (x) z = Cast <to = 1> (words) }"
"""Nodes that require host steps, with and without compiled ones, and without names."""


def own_case(name: str, text: str, inputs: list[Any], outputs: list[Any]) -> Case:
    model = onnx.parser.parse_model(text)
    return Case("node", TestCase(name, name, None, None, model, [(inputs, outputs)], "node", 0, 0))


def test_cases_are_counted_by_what_computes_them() -> None:
    """Counts cases by their use of C programs and host steps."""
    x = np.zeros(4, np.float32)
    found = [
        outcome(one, CBackend)
        for one in (
            case("test_strnormalizer_nostopwords_nochangecase"),
            own_case("test_words", f"{WORDS} {WRITTEN}", [x], [x]),
            own_case("test_mixed", MIXED, [x], [x + 1, x]),
            own_case("test_branch", BRANCH, [np.array(False), x], [x]),
            case("test_relu"),
        )
    ]
    assert [each.status for each in found] == [Status.PASSED] * 5
    host, other, mixed, branch, plain = found
    assert (host.computed, host.in_python) == (Computed.HOST, ("StringNormalizer",))
    assert (other.computed, other.in_python) == (Computed.HOST, ("Cast",))
    assert (mixed.computed, mixed.in_python) == (Computed.MIXED, ("Cast",))
    assert (plain.computed, plain.in_python) == (Computed.C, ())
    assert branch.computed == Computed.HOST and branch.in_python == ("Cast", "If")
    heading, *_, row = group_rows(found)
    counted = dict(zip(heading, row, strict=True))
    assert [counted[each] for each in Computed] == ["1", "1", "3"]
    assert " + ".join(Computed) in " ".join(host_lines(found))


def test_sequences_and_optionals_are_compiled() -> None:
    """Sequences are tensors of programs, without host steps."""
    cases = [
        one
        for one in all_cases()
        if one.is_here and group_of(one.model) == "sequences and optionals"
    ]
    found = [outcome(one, CBackend) for one in share("cases of sequences", cases, 4)]
    assert len(cases) == 42 and found
    assert {(one.status, one.computed) for one in found} == {(Status.PASSED, Computed.C)}


def test_the_reference_backend_does_not_count_as_c() -> None:
    found = [outcome(case("test_relu"), ReferenceBackend)]
    assert found[0].computed is None and not host_lines(found)
    assert counts(found)["all"] == {Status.PASSED: 1}
    assert group_rows(found)[0] == ("group", "tests", *Status)


def test_slow_cases_time_out() -> None:
    (found,) = outcomes([case("test_exp")], Scripted, 2, 0.5)
    assert found.status == Status.FAILED
    assert found.reason == "it takes longer than 0.5 s"


def test_differences_are_found_in_all_kinds_of_values() -> None:
    one, two = np.ones(2, np.float32), np.full(2, 2, np.float32)
    same = ([one], [[one, two]], [None], [np.array(["a"], object)], [np.float32(1)])
    for values in same:
        assert differences(values, values, 0, 0) == ""
    different: list[tuple[list[Any], list[Any]]] = [
        ([one], [two]),
        ([one], [one.astype(np.float64)]),
        ([one], [one[:1]]),
        ([one], []),
        ([[one, two]], [[one]]),
        ([[one]], [one]),
        ([None], [one]),
        ([one], [None]),
    ]
    for wanted, found in different:
        assert differences(wanted, found, 0, 0)


ONLY = "^test_(relu|sub|bernoulli|tril_neg|mystery|operator_chunk)$"
GROUP_TABLE = """
group                      tests  passed  wrong  failed  refused  skipped
structure fed at run time  1      1       0      0       0        0
other                      5      3       0      0       1        1
all                        6      4       0      0       1        1
"""
TABLE_OF_C = """
group                      tests  passed  C  C and host  host only  wrong  failed  refused  skipped
structure fed at run time  1      1       1  0           0          0      0       0        0
other                      5      3       3  0           0          0      0       1        1
all                        6      4       4  0           0          0      0       1        1
"""
REFUSED = "test_mystery"
NOT_PASSED = ["test_bernoulli", REFUSED]
"""Names of cases that do not pass."""
REFUSAL = "the operator no.such.domain.Mystery-1 is not supported"


@pytest.fixture
def with_a_mystery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds a case of an unknown operator, since all of ONNX's are supported."""
    x = np.zeros(2, np.float32)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    node = helper.make_node("Mystery", ["x"], ["y"], domain="no.such.domain")
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("no.such.domain", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    made = TestCase(REFUSED, REFUSED, None, None, model, [([x], [x])], "node", 0, 0)
    every = (*all_cases(), Case("node", made))
    monkeypatch.setattr("popgraph.conformance.cases.all_cases", lambda: every)


@pytest.mark.usefixtures("with_a_mystery")
def test_the_command_prints_tables_and_writes_all_outcomes(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    both = ["--backend", "c", "--backend", "reference", "--jobs", "1", "--limit", str(LONG)]
    ran = CliRunner().invoke(app, ["conformance", "--only", ONLY, "--json", str(file), *both])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.count(GROUP_TABLE) == ran.stdout.count(TABLE_OF_C) == 1
    assert f"\n1      refused  {REFUSAL}\n" in ran.stdout
    found = json.loads(file.read_text())["backends"]
    assert set(found) == {"c", "reference"}
    ended = {"passed": 4, "refused": 1, "skipped": 1}
    assert found["reference"]["counts"]["all"] == ended
    assert found["c"]["counts"]["all"] == {**ended, "C": 4}
    for each in found.values():
        refused = [test for test in each["tests"] if test["name"] == REFUSED]
        assert [test["reason"] for test in refused] == [REFUSAL]


@pytest.mark.usefixtures("with_a_mystery")
def test_the_command_lists_failing_cases() -> None:
    ran = CliRunner().invoke(
        app, ["conformance", "--only", ONLY, "--list", "--backend", "reference", "--jobs", "1"]
    )
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith("test_")]
    assert [row[0] for row in rows] == NOT_PASSED
    assert " ".join(rows[1][1:]) == f"other refused {REFUSAL}"


def test_wrong_answers_have_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popgraph.backend.CBackend", Scripted)
    ran = CliRunner().invoke(app, ["conformance", "--only", "^test_(relu|sub)$", "--jobs", "1"])
    assert ran.exit_code == 1, ran.output
    assert "all    2      1       1      0       0        0" in ran.stdout


def test_cases_are_collected_in_one_place() -> None:
    """ONNX builds its cases once per process, as its first caller requests: tests share one."""
    asking = "collect_" + "testcases"
    files = Path(__file__).parent.rglob("*.py")
    assert [str(file) for file in files if asking in file.read_text()] == []


def test_cases_do_not_depend_on_the_random_state() -> None:
    """Cases are drawn with a fixed seed, and NumPy's generator keeps its state."""
    code = (
        "import numpy as np\nfrom popgraph.conformance.cases import node_cases\n"
        "np.random.seed(1)\nbefore = np.random.get_state()[1].tolist()\n"
        "found = node_cases()\nassert np.random.get_state()[1].tolist() == before\n"
        "print([one.data_sets[0][0][0].sum() for one in found if one.name == 'test_add'])"
    )
    elsewhere = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    (here,) = case("test_add").data_sets()
    assert elsewhere.stdout.decode() == f"[{here[0][0].sum()!r}]\n"
