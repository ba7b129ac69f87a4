"""Tests the benchmark scripts and the tables that they write."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph import zoo
from popgraph.compiler import load, lower
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.passes.options import Options

TARGETS = ("avx512", "avx2", "sse2")
FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(FOLDER))


@pytest.fixture
def page() -> ModuleType:
    """The module of `python benchmarks`, imported without running it."""
    spec = importlib.util.spec_from_file_location("benchmarks_page", FOLDER / "__main__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def runtime(name: str, best: float, **more: object) -> dict[str, Any]:
    return {
        "name": name,
        "best_ms": best,
        "gflops": 50.0,
        "share_of_peak": 0.5,
        "error": None,
    } | more


def found(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": "net",
        "rows": list(rows),
        "cold": {"wall": 4.0, "own_cpu": 1.25, "compiler_cpu": 5.75},
        "warm": {"wall": 0.25, "own_cpu": 0.2, "compiler_cpu": 0.0},
        "memory_mb": {"popgraph": 20.4, "onnxruntime": 31.0},
        "arena": 110,
        "largest_live_set": 100,
    }


def test_rows_compare_with_the_best_peer(page: ModuleType) -> None:
    rows = (
        runtime("popgraph", 2.0, error=1e-7),
        runtime("onnxruntime", 5.0, error=2e-7),
        runtime("openvino", 3.0),
    )
    assert page.row("inference", found(*rows)) == (
        "| net | 2.00 | 5.00 | 3.00 | **1.50** | 50 | 50% | 4.0 | 1.2 | 5.8 | 0.25 | 20 | 31 "
        "| 1.10 | 1.0e-07 | 2.0e-07 |"
    )


def test_a_peer_that_refuses_does_not_count(page: ModuleType) -> None:
    rows = (
        runtime("popgraph", 2.0),
        runtime("onnxruntime", 5.0),
        runtime("openvino", 0.0, refusal="no"),
    )
    assert "| 5.00 | refused | **2.50** |" in page.row("inference", found(*rows))


def test_a_row_of_training_has_the_time_of_the_first_step(page: ModuleType) -> None:
    rows = [runtime("popgraph", 2.0), runtime("eager", 5.0)]
    more = {"theirs_first_step_s": 9.0, "losses_differ_by": 1e-6}
    line = page.row("training", {**found(*rows), **more})
    assert line == "| net | 2.00 | 5.00 | refused | **2.50** | 4.0 | 1.2 | 5.8 | 9.0 | 1.0e-06 |"


def test_tables_of_the_page_have_the_columns_and_no_empty_cell(page: ModuleType) -> None:
    """Rows measured before a column was added have no empty cell either."""
    headings = {cells[0]: list(cells) for cells in (page.INFERENCE, page.TRAINING)}
    heading: list[str] = []
    tables = 0
    pages = (page.page_of("inference", target) for target in TARGETS[:2])
    for line in "\n".join(path.read_text() for path in pages).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heading = []
        elif "ours ms" in cells and {"cold s", "first step s"} & set(cells):
            heading, tables = cells, tables + 1
            assert heading == [one for one in headings[heading[0]] if one in heading]
        elif heading:
            why = cells[1].startswith(("skipped: ", "not compiled: "))
            assert why or (len(cells) == len(heading) and all(cells)), line
    assert tables > 5


def test_cpu_time_of_the_process_and_of_compilers_is_separate() -> None:
    """Loops long enough that time in the wrong column would show."""
    from spent import spent

    loop = "for _ in range(3_000_000): pass"
    here = spent(lambda: exec(loop))
    there = spent(lambda: subprocess.run([sys.executable, "-c", loop], check=True))
    assert here["own_cpu"] > 0 and here["compiler_cpu"] == 0
    assert there["compiler_cpu"] > there["own_cpu"]


def test_networks_that_do_not_compile_have_a_row(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "inference.py").write_text("raise ValueError('no | such operator')")
    monkeypatch.setattr(page, "HERE", tmp_path)
    failed = page.measured("inference", "net", [])
    assert page.row("inference", failed) == (
        "| net | not compiled: ValueError: no \\| such operator |"
    )


def test_missing_packages_are_skipped_by_name(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = page.packaged.PACKAGED
    monkeypatch.setitem(models, "magika", replace(models["magika"], package="no==1"))
    found = page.measured("inference", "magika", [])
    assert page.row("inference", found) == "| magika | skipped: pip install --no-deps no==1 |"
    networks = page.architectures.ARCHITECTURES
    monkeypatch.setitem(networks, "swin_t", replace(networks["swin_t"], package="no_such"))
    found = page.measured("architectures", "swin_t", [])
    assert page.row("architectures", found) == "| swin_t | skipped: pip install no_such |"


def test_every_trained_model_is_of_a_package(page: ModuleType) -> None:
    assert set(page.TRAINED) <= set(page.packaged.PACKAGED)


def test_columns_without_figures_are_left_out(page: ModuleType) -> None:
    table = (
        "| a | b | c |\n| --- | ---: | ---: |\n| x | - | 1 |\n| y | skipped: - |\n| z | - | - |\n"
    )
    assert page.without_empty_columns(f"Text | -\n\n{table}") == (
        "Text | -\n\n| a | c |\n| --- | ---: |\n| x | 1 |\n| y | skipped: - |\n| z | - |\n"
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_replaces_only_the_text_between_its_markers(
    target: str, page: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POPGRAPH_TARGET", target)
    for path in page.PAGE.parent.glob("performance*.md"):
        (tmp_path / path.name).write_text(path.read_text())
    real = "".join(path.read_text() for path in sorted(tmp_path.iterdir()))
    monkeypatch.setattr(page, "PAGE", tmp_path / page.PAGE.name)
    for kind in page.KINDS:
        page.write(kind, "new")
        page.write(kind, f"new {kind}")
    text = "".join(path.read_text() for path in sorted(tmp_path.iterdir()))
    for other in set(TARGETS) - {target}:
        begin, end = f"<!-- inference with {other} -->", f"<!-- end of inference with {other} -->"
        assert real.partition(begin)[2].partition(end)[0] in text
    assert all(text.count(f"\nnew {kind}\n") == 1 for kind in page.KINDS) and "\nnew\n" not in text


def test_every_network_is_known(page: ModuleType) -> None:
    pytest.importorskip("torch", reason="it makes half of the networks")
    from networks import NETWORKS
    from training import CASES

    assert set(page.STEPS) == set(CASES)
    assert set(page.FROM_TORCH) == set(NETWORKS)


def test_a_network_from_torch_is_computed_as_onnxruntime_does() -> None:
    pytest.importorskip("torch", reason="it makes the network")
    runtime = pytest.importorskip("onnxruntime", reason="the oracle")
    from models import model

    import popgraph

    proto = model("encoder_4x256")
    x = np.random.default_rng(0).standard_normal((1, 128, 256)).astype(np.float32)
    (expected,) = runtime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    found = popgraph.compile(proto)(x=x)["y"]
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_operator_cases_report_slow_ones_with_reasons(page: ModuleType) -> None:
    def case(theirs: float, **more: object) -> dict[str, Any]:
        times = {"ours_ms": 2.0, "theirs_ms": theirs, "differ_by": 0.0, "reason": "memory"}
        return {"operator": "Add", "case": "8", **times, **more}

    cases = [
        case(4.0),
        case(1.0),
        case(1.0, reason=""),
        case(2.0, differ_by=0.5),
        {"operator": "Add", "case": "9", "reason": "", "refused": "no such type"},
    ]
    all_found = {"model": "Add", "cases": cases}
    assert list(page.ops_rows(all_found)) == [
        "| Add | 8 | 2.00 | 4.00 | **2.00** |  |",
        "| Add | 8 | 2.00 | 1.00 | **0.50** | memory |",
        "| Add | 8 | 2.00 | 1.00 | **0.50** | **none** |",
        "| Add | 8 | 2.00 | 2.00 | **1.00** | the results differ by 5.0e-01 |",
        "| Add | 9 |  |  |  | onnxruntime refuses: no such type |",
    ]
    assert next(page.ops_summary([all_found])) == "Geometric mean of 4 cases: 0.84; below 0.8: 2."


def test_operators_with_cases_are_compiled_ones(page: ModuleType) -> None:
    from operator_cases import ABSENT, compiled, missing

    assert set(page.OPERATORS) <= set(compiled())
    assert set(page.OPERATORS) | ABSENT == set(compiled())
    assert missing() == []


def test_reasons_are_of_operators_with_cases(page: ModuleType) -> None:
    from operator_cases import REASONS

    assert set(REASONS) <= set(page.OPERATORS)


def test_the_reason_of_a_case_precedes_that_of_its_operator() -> None:
    from operator_cases import INTEGERS, Case, reason

    case = Case("MatMulInteger", ())
    assert reason(case) == INTEGERS
    assert reason(replace(case, reason="small")) == "small"
    assert reason(Case("Relu", ())) == ""


def test_operators_are_timed_beside_onnxruntime() -> None:
    pytest.importorskip("onnxruntime", reason="the peer of every row")
    from operator_cases import CASES
    from ops import measure

    case = next(case for case in CASES if case.operator == "ConvTranspose")
    found = measure(case, seconds=0, rounds=1)
    assert found["ours_ms"] > 0 and found["theirs_ms"] > 0 and found["differ_by"] < 1e-5


def test_a_script_prints_one_object() -> None:
    pytest.importorskip("openvino", reason="a peer of every row")
    pytest.importorskip("torch", reason="it makes the network")
    done = subprocess.run(
        [sys.executable, FOLDER / "inference.py", "mlp_4_16_3", "--seconds", "0", "--rounds", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert [row["name"] for row in found["rows"]] == ["popgraph", "onnxruntime", "openvino"]
    assert all(0 < size < 1000 for size in found["memory_mb"].values())


def test_hashes_of_generated_c_need_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes are reproducible, and depend on the machine and the number of threads."""
    import hashes

    def lenet(_: str) -> tuple[ModuleOp, Compilation, Options]:
        module, compilation = load(zoo.lenet.path)
        specialise(module, {"image": (4, 1, 28, 28)}, compilation.weights)
        return module, compilation, Options()

    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(hashes, "task_of", lenet)
    network, machines, threads = "inference/squeezenet", ("sse2", "avx2"), (1, 2)
    lines = hashes.lines_of(network, machines, threads)
    assert [line.partition(":")[0] for line in lines] == [
        f"{network} {machine} x{count}" for machine in machines for count in threads
    ]
    assert len({line.rpartition(": ")[2] for line in lines}) == len(lines)
    assert hashes.lines_of(network, ("sse2",), (2,)) == [lines[1]]


def test_differing_hashes_are_reported() -> None:
    from hashes import differences

    before = ["inference/a avx2 x1: 01", "inference/a avx2 x2: 02", "inference/b avx2 x1: 03"]
    after = ["inference/a avx2 x1: 01", "inference/a avx2 x2: 05", "inference/c avx2 x1: 06"]
    assert list(differences(before, after)) == ["inference/a avx2 x2: 02 -> 05"]


def test_sensitive_thresholds_are_found() -> None:
    """Rerunning passes with many changed thresholds finds the same as whole compilations."""
    from thresholds import DEFAULT, DIRECTIONS, Lowered, neighbour, sensitivity

    module, compilation = load(zoo.lenet.path)
    specialise(module, {"image": (4, 1, 28, 28)}, compilation.weights)
    options, names = Options(measured=()), ("chain_terms", "longest_body", "shortest_row")

    def program(**values: Any) -> ModuleOp:
        chosen = replace(options, tuning=replace(DEFAULT, **values))
        return lower(module.clone(), Compilation(compilation.weights), chosen)

    usual = program()
    expected = {
        (name, direction)
        for name, direction in product(names, DIRECTIONS)
        if not usual.is_structurally_equivalent(
            program(**{name: neighbour(getattr(DEFAULT, name), direction)})
        )
    }
    found = sensitivity(Lowered.of(module.clone(), compilation.weights, options), names)
    assert {(name, way) for name, changes in found.items() for way in changes} == expected
    assert 0 < len(expected) < len(names) * len(DIRECTIONS)


def test_docstrings_of_thresholds_match_the_record() -> None:
    """Docstrings name the program that changes most, or why a threshold without effect stays."""
    from thresholds import EVIDENCE, RECORD, THRESHOLDS, UNFELT, with_evidence

    record = json.loads(RECORD.read_text())
    source = (FOLDER.parent / "popgraph/support/tuning.py").read_text()
    assert with_evidence(source, record) == source
    for name in THRESHOLDS:
        wanted = EVIDENCE if record["thresholds"][name]["felt"] else UNFELT
        pattern = rf'^    {name}: [^\n]*\n    """(.*?)"""'
        found = re.search(pattern, source, re.MULTILINE | re.DOTALL)
        assert found and wanted in found[1], name


def test_runtimes_of_the_arena_agree(tmp_path: Path) -> None:
    """A small model of the same architecture, in every file format and runtime at hand."""
    pytest.importorskip("onnxruntime", reason="a contestant")
    import arena
    from arena_players import OnnxRuntime, PopGraph
    from smollm import EMBEDDING, WEIGHTS, Shape
    from smollm_files import write_folder, write_onnx

    from popgraph.support.safetensors import read_all

    shape = Shape(8, vocabulary=20, width=16, hidden=24, layers=1, heads=4, kv_heads=2, size=4)
    write_folder(shape, tmp_path)
    write_onnx(tmp_path)
    for job, size in ((arena.forward, shape.length), (arena.token, arena.TOKENS)):
        results = {
            kind.title: job(kind(tmp_path, shape, 1)).result() for kind in (PopGraph, OnnxRuntime)
        }
        assert all(one.shape == (size, shape.vocabulary) for one in results.values())
        assert max(arena.differences(results).values()) < 1e-6
    weights, _ = read_all(tmp_path / WEIGHTS)
    assert {name: one.shape for name, one in weights.items()} == shape.weights
    assert weights[EMBEDDING].std() == pytest.approx(1 / 24, rel=0.1)


def test_steps_of_the_arena_agree(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the other contestant")
    import arena
    from arena_players import DECAY, EPSILON, RATE, Eager, PopGraph
    from smollm import Shape
    from smollm_files import TEXT, write_folder

    shape = Shape(8, vocabulary=20, width=16, hidden=24, layers=1, heads=4, kv_heads=2, size=4)
    write_folder(shape, tmp_path)
    losses = {
        kind.title: arena.step(kind(tmp_path, shape, 1)).result() for kind in (PopGraph, Eager)
    }
    assert max(arena.differences(losses).values()) < 1e-6
    assert all(list(one) == sorted(one, reverse=True) for one in losses.values())
    # Only gradients as small as those of the whole vocabulary would feel another epsilon.
    assert f"AdamW({RATE}, weight_decay={DECAY}, epsilon={EPSILON})" in TEXT.read_text()


def test_a_model_for_llama_cpp_has_its_order_of_rows(tmp_path: Path) -> None:
    """Our reader of GGUF restores the weights, among them the interleaved rows of heads."""
    pytest.importorskip("gguf", reason="it writes the file")
    from smollm import GGUF, WEIGHTS, Shape
    from smollm_files import write_folder, write_gguf

    from popgraph.support.checkpoints import open_checkpoint
    from popgraph.support.safetensors import read_all

    shape = Shape(8, vocabulary=20, width=16, hidden=24, layers=1, heads=4, kv_heads=2, size=4)
    write_folder(shape, tmp_path)
    write_gguf(shape, tmp_path)
    found, (weights, _) = open_checkpoint(tmp_path / GGUF), read_all(tmp_path / WEIGHTS)
    assert set(found.readers) == set(weights)
    for name, array in weights.items():
        np.testing.assert_array_equal(found.readers[name](), array)


def test_a_wrong_result_has_no_time_in_the_arena(page: ModuleType) -> None:
    results = {"a": np.array([1.0, -4.0]), "b": np.array([1.0, -4.0]), "c": np.array([1.0, -3.0])}
    differ = page.arena.differences(results)
    assert differ == {"a": 0, "b": 0, "c": 0.25}
    differ = page.arena.differences({**results, "d": np.array([np.nan, -4])})
    assert [page.arena.verdict(4, one) for one in differ.values()] == ["", "", "wrong", "wrong"]
    assert page.arena.verdict(1, 0.0) == "unchecked"

    def task(**more: object) -> dict[str, Any]:
        figures = {"seconds": 0.0021, "first_s": 3.0, "joules": None}
        return {**figures, "differs_by": 2e-7, "verdict": "", **more}

    rows = [
        {"name": "a", "skipped": "", "version": "1", "how": "well", "tasks": {"token": task()}},
        {
            "name": "b",
            "skipped": "",
            "version": "2",
            "how": "badly",
            "tasks": {
                "forward": task(verdict="wrong", differs_by=0.25),
                "step": {"refused": "ValueError: no"},
            },
        },
        {"name": "c", "skipped": "pip install c", "version": "", "how": "", "tasks": {}},
    ]
    found = {"rows": rows, "energy": "no counters"}
    assert list(page.arena_rows(found)) == [
        "| a | - | 2.10 | - | - | - | - | - | - | - | 2.0e-07 | - |",
        "| b | wrong | - | refused | - | - | - | - | - | 2.5e-01 | - | - |",
        "| c | skipped: pip install c |",
    ]
    assert list(page.arena.notes(found)) == [
        "- a 1: well.",
        "- b 2: badly.",
        "- b refuses the task `step`: ValueError: no.",
        "- Joules are missing: no counters.",
    ]


def test_energy_is_that_of_all_packages(tmp_path: Path) -> None:
    """Parts of packages count once; a counter may wrap around."""
    from energy import Meter

    assert "no RAPL" in Meter(tmp_path / "absent").obstacle
    for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "energy_uj").write_text("5000000\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("9000000\n")
    meter = Meter(tmp_path)
    assert meter.obstacle == "" and meter.read() == [5_000_000, 5_000_000]
    assert meter.joules([5_000_000, 8_000_000], [7_000_000, 1_000_000]) == 4
    (tmp_path / "intel-rapl:1/energy_uj").unlink()
    unreadable = Meter(tmp_path)
    assert "cannot be read" in unreadable.obstacle and unreadable.read() == []


def test_only_changed_programs_are_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import instructions
    import quick

    hashes = {"a": {"avx2": "1", "here": "2"}, "b": {"avx2": "3", "here": "4"}, "c": {}}
    hashes["c"] = hashes["a"]
    changed = {**hashes, "b": {"avx2": "3", "here": "5"}, "c": {"avx2": "6", "here": "7"}}
    answers: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
        "hash": (["a", "b", "c"], [hashes, changed]),
        "count": (["c"], [{"c": 100}, {"c": 104}]),
    }

    def asked(task: str, networks: list[str], _: object) -> list[dict[str, Any]]:
        wanted, answer = answers[task]
        assert networks == wanted
        return answer

    def times(networks: list[str], *_: object) -> dict[str, float]:
        assert networks == ["b", "c"]
        return {"b": 1.029, "c": 0.9}

    monkeypatch.setattr(quick, "asked", asked)
    monkeypatch.setattr(quick, "times", times)
    monkeypatch.setattr(quick, "obstacle", lambda name: "pip install d" if name == "d" else "")
    monkeypatch.setattr(instructions, "obstacle", lambda: "")
    rows = list(quick.compared(["a", "b", "c", "d"], tmp_path, tmp_path))
    assert [row.cells for row in rows] == [
        ["a", "-", "-", "-", ""],
        ["b", "here", "-", "1.029", ""],
        ["c", "avx2, here", "1.040", "0.900", "**slower**"],
        ["d", "skipped: pip install d", "", "", ""],
    ]


def test_calls_are_always_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import quick

    def times(names: list[str], *_: object) -> dict[str, float]:
        return {name: 1.031 if name == "relu" else 1.0 for name in names}

    monkeypatch.setattr(quick, "times", times)
    rows = list(quick.timed_calls((tmp_path, tmp_path), tmp_path))
    assert [row.network for row in rows if row.is_slower] == ["call/relu"]
    assert {"call/relu, ort", "call/step, fit", "call/step, popart"} <= {
        one.network for one in rows
    }


def test_programs_of_a_revision_are_hashed_counted_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    import instructions
    import quick

    def lenet(_: str) -> tuple[ModuleOp, Compilation, Options]:
        module, compilation = load(zoo.lenet.path)
        specialise(module, {"image": (1, 1, 28, 28)}, compilation.weights)
        return module, compilation, Options()

    monkeypatch.setattr(quick, "task_of", lenet)
    assert quick.key_of("lenet", "avx2") == quick.key_of("lenet", "avx2")
    one = quick.contestant("lenet")
    one.prepare(lambda: 0.0)
    if not instructions.obstacle():
        monkeypatch.setenv("POPGRAPH_TARGET", "avx2")
        kept = json.loads(instructions.STORED.read_text())["instructions"]["lenet"]
        assert 0.5 * kept < quick.count_of("lenet") < 2 * kept


@pytest.mark.parametrize(
    ("script", "arguments", "known"),
    [
        ("cold", ["resnet50", "vgg19"], "mobilenet_v2"),
        ("calls", ["vgg19"], "step, fit"),
        ("embedded", ["vgg19"], "ds_cnn"),
        ("ops", ["vgg19"], "Softmax"),
        ("quick", ["--networks", "vgg19"], "inference/vgg19"),
    ],
)
def test_unknown_names_are_refused_before_a_measurement(
    script: str,
    arguments: list[str],
    known: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit):
        importlib.import_module(script).main()
    said = capsys.readouterr()
    kind = {"calls": "call", "ops": "operator"}.get(script, "network")
    assert f"there is no {kind} 'vgg19'" in said.err and known in said.err
    assert not said.out


def test_networks_of_the_examples_of_cold_exist() -> None:
    cold = importlib.import_module("cold")
    named = re.findall(r"cold\.py (\w+)", cold.__doc__ or "")
    assert named and {*named, *cold.NETWORKS} <= {*zoo.names()}
