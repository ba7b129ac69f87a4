"""Tests extensions: the example distribution, scripts, errors, caches."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, TypeProto, helper
from typer.testing import CliRunner
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import popgraph
from popgraph import compiler, extend
from popgraph.backends.c.cache import program_key
from popgraph.cli import app
from popgraph.compat import disable, libraries
from popgraph.dialects import graphcore as gc
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.record import RECORDS, record_of
from popgraph.dialects.onnx.types import static_shape
from popgraph.passes import outside
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.passes.pipeline import planned
from popgraph.support import extensions
from popgraph.support.arrays import Array
from popgraph.support.errors import ExtensionError, PassError, PopgraphError
from tests.commanded import run_command

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples/extend"
X = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)
W = np.arange(12, dtype=np.float32).reshape(3, 4)


def expected(scale: float = 2.0) -> np.ndarray:
    squared = np.maximum(X, 0) ** 2
    return scale * squared / (1 + np.abs(squared)) @ W


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed."""
    place = tmp_path_factory.mktemp("extend")
    shutil.copytree(EXAMPLE, place / "source")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    target = ["--target", str(place / "site"), str(place / "source")]
    command = [sys.executable, "-m", "pip", "install", "-q", *options, *target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    onnx.save(model(), place / "net.onnx")
    return place


def model() -> onnx.ModelProto:
    """A model of two canceling negations, both operators of the example, and a matmul."""
    nodes = [
        helper.make_node("Neg", ["x"], ["minus_x"]),
        helper.make_node("Neg", ["minus_x"], ["again"]),
        helper.make_node("SquaredRelu", ["again"], ["squared"], domain="com.example"),
        helper.make_node("SoftsignScaled", ["squared"], ["s"], domain="com.example", scale=2.0),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [onnx.numpy_helper.from_array(W, "w")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def run(
    site: Path, *arguments: str, more: Mapping[str, str] | None = None, input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python with the example installed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(site / "site")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(more or {}),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=site,
        env=environment,
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )


def output(site: Path, *arguments: str, more: Mapping[str, str] | None = None) -> str:
    done = run(site, *arguments, more=more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TOY = """
import numpy as np, popgraph, sys
assert "popgraph_example.backends" not in sys.modules
run = popgraph.compile("net.onnx", backend="toy")
assert "popgraph_example.backends" in sys.modules and not run.computed_by.in_c
print(run(x=np.array(X, np.float32))["y"].tolist())
"""


def test_the_backend_of_the_example_runs_models(site: Path) -> None:
    found = output(site, "-c", TOY.replace("X", str(X.tolist())))
    np.testing.assert_allclose(np.array(eval(found)), expected(), rtol=1e-5)
    shown = output(site, "-m", "popgraph", "run", "net.onnx", "--random", "--backend", "toy")
    assert "y" in shown
    done = run(site, "-c", "import popgraph; popgraph.compile('net.onnx', backend='tory')")
    known = "there are 'c', 'reference' and 'toy'"
    assert "no backend 'tory'" in done.stderr and known in done.stderr


def test_a_backend_without_tools_has_an_error() -> None:
    class Toy(extend.Backend):
        name = "toy"

        def build(self, *given: Any, **wishes: Any) -> extend.Executable:
            raise AssertionError("nothing is built")

    with pytest.raises(PopgraphError, match="the backend 'toy' cannot show, measure or"):
        Toy().tools  # noqa: B018
    assert Toy().key(ModuleOp([]), []) is None and Toy().shortcuts.recall("m.onnx", None, 1) is None


def test_two_backends_of_one_name_are_refused() -> None:
    class Second(extend.Backend):
        name = "c"

        def build(self, *given: Any, **wishes: Any) -> extend.Executable:
            raise AssertionError("nothing is built")

    with pytest.raises(ExtensionError, match="duplicate backend 'c'"):
        extend.add_backend(Second())


PROGRAM = """
import numpy as np, popgraph, sys
from popgraph.support.machine import machine_named
for backend in "c", "reference":
    for passes in (), ["drop-double-negation"], ["prefer-unpacked"]:
        options = popgraph.Options(passes=passes)
        run = popgraph.compile("net.onnx", backend=backend, options=options)
        print(run(x=np.array(X, np.float32))["y"].tolist())
        if not passes and backend == "c":
            assert "popgraph_example.passes" not in sys.modules, "nobody has asked for it"
assert machine_named("little_core").l2_bytes == 128 << 10
assert popgraph.Options(machine=machine_named("little_core")).target.machine.registers == 16
"""


def test_the_installed_example_works(site: Path) -> None:
    text = output(site, "-c", f"X = {X.tolist()}\n{PROGRAM}")
    rows = [np.array(eval(line)) for line in text.splitlines()]
    assert len(rows) == 6
    for row in rows:
        assert np.allclose(row, expected(), rtol=1e-5)


TRAINING = """
import numpy as np, popgraph
builder = popgraph.Builder()
x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [2, 3]), "x")
w = builder.addInitializedInputTensor(np.array(X, np.float32), "w")
(y,) = builder.customOp(NAME, 1, "com.example", [w], ATTRIBUTES, 1)
loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, y])], popgraph.ReductionType.Sum)
gradient, every = popgraph.reservedGradientPrefix() + w, popgraph.AnchorReturnType("ALL")
session = popgraph.TrainingSession(
    builder.getModelProto(),
    popgraph.DataFlow(1, {gradient: every}),
    loss,
    popgraph.SGD({"defaultLearningRate": (0.1, True)}),
    popgraph.DeviceManager().createCpuDevice(),
)
session.prepareDevice(); session.weightsFromHost()
anchors = session.initAnchorArrays()
session.run(popgraph.PyStepIO({x: np.ones((2, 3), np.float32)}, anchors))
print(next(iter(anchors.values())).tolist())
"""
SLOPES = {
    "SquaredRelu": ({}, 2 * np.maximum(X, 0)),
    "SoftsignScaled": ({"scale": 3.0}, 3 / (1 + np.abs(X)) ** 2),
}


def test_gradients_of_extension_operators(site: Path) -> None:
    """Gradients of sum(y)."""
    for name, (attributes, slope) in SLOPES.items():
        head = f"X, NAME, ATTRIBUTES = {X.tolist()}, {name!r}, {attributes}\n"
        got = np.array(eval(output(site, "-c", head + TRAINING)))
        assert np.allclose(got.reshape(2, 3), slope, rtol=1e-5)


def test_the_command_line_lists_installed_extensions(site: Path) -> None:
    asked = ("-m", "popgraph", "print", "net.onnx", "--dim", "N=2")
    before = output(site, *asked, "--stop-after", "onnx-to-graphcore")
    assert before.count("graphcore.neg") == 2 and "example.softsign_scaled" in before
    done = run(site, "-m", "popgraph", "opt", "-p", "drop-double-negation,dce", "--check",
               input=before)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "graphcore.neg" not in done.stdout and "example.softsign_scaled" in done.stdout
    listed = output(site, "-m", "popgraph", "passes")
    assert "drop-double-negation" in listed and "Replace -(-x) by x." in listed


def test_an_extension_pass_changes_schedules(site: Path) -> None:
    """A custom pass changes the schedule of a matmul whose weights the cost model packs."""
    text = (
        "graph g(x: f32[64, 256]) -> (y) {\n"
        "    weight w: f32[256, 256] = glorot_uniform\n    y = x @ w\n}\n"
    )
    (site / "product.pgraph").write_text(text)
    asked = ("-m", "popgraph", "print", "product.pgraph", "--at", "structured", "--tuned", "off")
    more = {"POPGRAPH_MACHINE": "skylake_server"}
    usual = output(site, *asked, more=more)
    assert "tile.pack" in usual and "schedule <" in usual
    unpacked = output(site, *asked, "--pass", "prefer-unpacked", more=more)
    assert "tile.pack" not in unpacked and "schedule <" in unpacked


def test_the_environment_selects_extension_targets(site: Path) -> None:
    show = "import popgraph.backends.c.build.host as h; print(h.host_machine().l2_bytes)"
    assert output(site, "-c", show, more={"POPGRAPH_MACHINE": "little_core"}) == "131072\n"
    wrong = run(site, "-c", show, more={"POPGRAPH_MACHINE": "litle_core"})
    assert "there is no machine 'litle_core'" in wrong.stderr
    more = {"POPGRAPH_TARGET": "little_core"}
    printed = output(site, "-m", "popgraph", "doctor", more=more)
    place = "entry point 'little_core' of 'popgraph.targets' in distribution popgraph-example 1.0"
    assert place in printed and re.search(r"vectors +little_core: 16 bytes, 16 registers", printed)


def test_operators_are_listed_with_their_distribution(site: Path, tmp_path: Path) -> None:
    listed = output(site, "-m", "popgraph", "ops", "com.example")
    assert re.findall(r"^(\S+) +1 +(.*?) +yes", listed, re.MULTILINE) == [
        ("com.example.SoftsignScaled", "own lowering, distribution popgraph-example 1.0"),
        ("com.example.SquaredRelu", "own lowering, distribution popgraph-example 1.0"),
    ]
    level = output(site, "-m", "popgraph", "--load", "popgraph_example.operators", "ops",
                   "softsign_scaled", "--level", "graphcore")  # fmt: skip
    assert level == "example.softsign_scaled  scale * x / (1 + |x|). com.example SoftsignScaled.\n"
    script = tmp_path / "mine.py"
    script.write_text(
        "from popgraph.extend import lowers\n"
        "lowers('Same', domain='com.mine')(lambda node: node[0])\n"
    )
    printed = output(site, "-m", "popgraph", "ops", "Same", "--load", str(script))
    assert "com.mine.Same" in printed and "own lowering, module mine" in printed


def test_export_for_extension_targets(site: Path) -> None:
    """The Makefile has the target's compiler flags, and `make check` succeeds."""
    asked = ("-m", "popgraph", "export", "net.onnx", "--dim", "N=2")
    output(site, *asked, "-o", "own_c", "--target", "little_core")
    makefile = (site / "own_c/Makefile").read_text()
    assert "\nARCH = -march=x86-64\n" in makefile and "for little_core" in makefile
    if platform.machine() == "x86_64":
        checked = subprocess.run(["make", "-C", site / "own_c", "check"], capture_output=True)
        assert checked.returncode == 0, checked.stderr
    code = (site / "own_c/model.c").read_text()
    assert "vector_size(16)" in code and "vector_size(32)" not in code


FAR = """
from dataclasses import dataclass
from popgraph.extend import Machine, Pass, add_pass, add_target

add_target(Machine(name="far_core"), ("-mcpu=far -mthumb",), compiler="far-gcc")

@add_pass(after="expand")
@dataclass(frozen=True)
class Tell(Pass):
    name = "tell"

    def run(self, compilation, module):
        print("told")
"""


def test_export_takes_targets_and_passes_of_a_script(site: Path, tmp_path: Path) -> None:
    script = tmp_path / "far_core.py"
    script.write_text(FAR)
    asked = ("-m", "popgraph", "export", "net.onnx", "--dim", "N=2", "-o", "far_c", "--target")
    printed = output(site, *asked, "far_core", "--load", str(script), "--pass", "tell")
    assert printed.startswith("told\n")
    makefile = (site / "far_c/Makefile").read_text()
    assert "CC = far-gcc\n" in makefile and "\nARCH = -mcpu=far -mthumb\n" in makefile
    wrong = run(site, *asked, "near_core", "--load", str(script))
    assert wrong.returncode == 1
    known = "native, x86-64-v2, x86-64-v3, x86-64-v4, aarch64, armv7e-m, riscv64, wasm32"
    assert f"try: use one of {known}, far_core, little_core" in wrong.stderr


RESULT = f"""
import numpy as np, popgraph
X = np.array({X.tolist()}, np.float32)
print(popgraph.compile("net.onnx")(x=X)["y"].tolist())
"""


def test_a_changed_extension_changes_the_cache_key(site: Path, tmp_path: Path) -> None:
    """Programs are cached as long as the extension's code is unchanged."""
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    cache = tmp_path / "cache"
    more = {"POPGRAPH_PROGRAM_CACHE": "1", "POPGRAPH_CACHE_DIR": str(cache), "POPGRAPH_POISON": "0"}
    assert np.allclose(eval(output(copy, "-c", RESULT, more=more)), expected())
    kept = list((cache / "programs").rglob("*"))
    assert np.allclose(eval(output(copy, "-c", RESULT, more=more)), expected())
    assert list((cache / "programs").rglob("*")) == kept, "the second start has found it"
    file = copy / "site/popgraph_example/operators.py"
    text = file.read_text()
    assert "gc.MulOp(self.x, scalar(self.factor, self.x))" in text
    file.write_text(text.replace("scalar(self.factor, self.x)", "scalar(3 * self.factor, self.x)"))
    assert np.allclose(eval(output(copy, "-c", RESULT, more=more)), expected(6.0))


BROKEN = """
[popgraph.ops]
com.example = popgraph_broken
[popgraph.passes]
broken-pass = popgraph_broken
"""


def test_a_broken_distribution_is_named_and_hides_nothing(site: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    (copy / "site/popgraph_broken.py").write_text("import nothing_like_that\n")
    info = copy / "site/popgraph_broken-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: popgraph-broken\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(BROKEN.replace("com.example", "com.broken"))
    listed = run(copy, "-m", "popgraph", "passes")
    assert listed.returncode == 0 and "drop-double-negation" in listed.stdout
    assert "ModuleNotFoundError: No module named 'nothing_like_that'" in listed.stderr
    place = "entry point 'broken-pass' of 'popgraph.passes' in distribution popgraph-broken 2.5"
    assert place in listed.stderr
    assert np.allclose(eval(output(copy, "-c", RESULT)), expected())
    program = RESULT.replace("net.onnx", "broken.onnx")
    broken = model()
    for node in broken.graph.node:
        node.domain = node.domain.replace("com.example", "com.broken")
    broken.opset_import[1].domain = "com.broken"
    onnx.save(broken, copy / "broken.onnx")
    shown = output(copy, "-m", "popgraph", "print", "broken.onnx")
    assert '"com.broken" "SquaredRelu"' in shown, "reading it needs no extension"
    done = run(copy, "-c", program)
    place = "entry point 'com.broken' of 'popgraph.ops' in distribution popgraph-broken 2.5"
    assert "ExtensionError: an extension cannot be loaded" in done.stderr and place in done.stderr
    (info / "entry_points.txt").write_text(BROKEN)
    done = run(copy, "-m", "popgraph", "run", "net.onnx", "--random", "--dim", "N=2")
    assert done.returncode == 1 and "several distributions provide 'com.example'" in done.stderr


# Registration by a script


@dataclass(frozen=True)
class Spy(extend.Pass):
    """A pass without effect."""

    name = "spy"
    number: int = 0

    def run(self, compilation: extend.Compilation, module: ModuleOp) -> None:
        pass


@pytest.fixture
def registries() -> Iterator[None]:
    """Restores the registries after a test."""
    tables: list[dict[Any, Any]] = [
        outside.OUTSIDE,
        RECORDS,
        extensions.SOURCES,
    ]
    assert record_of("", "Add"), "the table of contents is in"
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def names(options: popgraph.Options) -> list[str]:
    return [f"{made.name}{getattr(made, 'number', '')}" for _, made in planned(options)]


@pytest.mark.usefixtures("registries")
def test_passes_run_at_their_requested_position() -> None:
    usual = names(popgraph.Options())
    extend.add_pass(after="cse")(Spy)
    assert names(popgraph.Options()) == usual, "nobody has asked for it"
    asked = names(popgraph.Options(passes=["spy", "spy{number=2}", "spy{number=1} before cse"]))
    at = usual.index("cse")
    assert asked == [*usual[:at], "spy1", "cse", "spy0", "spy2", *usual[at + 1 :]]
    after = extend.Placed(Spy(7), after="fold-constants")
    asked = names(popgraph.Options(passes=[after]))
    last = len(usual) - 1 - usual[::-1].index("fold-constants")
    assert asked == [*usual[: last + 1], "spy7", *usual[last + 1 :]]
    lowered = names(popgraph.Options(passes=[replace(after, after="plan-memory")]))
    assert lowered[lowered.index("plan-memory") + 1] == "spy7"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("spi", "there is no pass 'spi'"),
        ("cse", "the pass cse has no position"),
        (Spy(), "the pass spy has no position"),
        (3, "3 is not a pass"),
        ("cse after", "'cse after' is not a pass"),
        ("cse after canonicalise", "did you mean 'canonicalize'?"),
        ("cse{x=1} after dce", "not found in expected"),
    ],
)
def test_a_pass_that_cannot_run_is_refused(wanted: object, message: str) -> None:
    with pytest.raises(PassError) as caught:
        names(popgraph.Options(passes=[wanted]))
    assert message in str(caught.value)


def test_a_position_that_a_pass_excludes_is_refused() -> None:
    class Late(Spy):
        AFTER = ("dce",)
        NEEDS = (extend.properties.EXPANDED,)

    with pytest.raises(PassError, match="spy must run after dce"):
        names(popgraph.Options(passes=[extend.Placed(Late(), after="cse")]))
    with pytest.raises(PassError, match="expand gives it: spy must run after expand"):
        names(popgraph.Options(passes=[extend.Placed(Late(), before="canonicalize")]))
    assert "spy0" in names(popgraph.Options(passes=[extend.Placed(Late(), after="dce")]))


def test_the_passes_of_options_are_a_list() -> None:
    with pytest.raises(PassError, match="'spy' is not a list of passes"):
        popgraph.Options(passes="spy")


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("rows", [2, "N"])
def test_shapes_after_extension_operators_are_known(rows: int | str) -> None:
    """Shapes are known at the onnx level, too, where inner graphs and functions need them."""
    doubled = extend.lowers("Doubled", domain="com.mine")
    doubled(lambda node: gc.ConcatOp([node[0], node[0]], axis=1))
    nodes = [
        helper.make_node("Doubled", ["x"], ["twice"], domain="com.mine"),
        helper.make_node("Shape", ["twice"], ["shape"]),
        helper.make_node("Expand", ["x1", "shape"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3]),
        helper.make_tensor_value_info("x1", TensorProto.FLOAT, [1]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.mine", 1)]
    graph = helper.make_graph(nodes, "net", inputs, [output])
    made = helper.make_model(graph, opset_imports=opsets)
    module, compilation = compiler.load(made)
    if rows == "N":
        specialise(module, {"x": (2, 3), "x1": (1,)}, compilation.weights, {})
    compiler.lower(module, compilation, until="infer-shapes")
    shapes = [static_shape(op.results[0].type) for op in model_of(module).graph.nodes]
    assert shapes == [(2, 6), (2,), (2, 6)]
    found = popgraph.compile(made, backend="reference")(x=X, x1=np.ones(1, np.float32))["y"]
    assert found.shape == (2, 6)


def results(name: str, x: Array, count: int) -> list[Array]:
    """The results of a node of the domain `com.mine`."""
    names = [f"y{number}" for number in range(count)]
    node = helper.make_node(name, ["x"], names, domain="com.mine")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    outputs = [helper.make_value_info(id, TypeProto()) for id in names]
    graph = helper.make_graph([node], "net", [given], outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.mine", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    found = popgraph.compile(model, backend="reference")(x=x)
    return [found[id] for id in names]


@pytest.mark.usefixtures("registries")
def test_operators_are_defined_by_others() -> None:
    @extend.lowers("Largest", domain="com.mine")
    def largest(node: extend.Node) -> list[SSAValue]:
        values, places = node.apply(
            "TopK", node[0], node.literal(np.array([2])), axis=1, outputs=2, opset=11
        )
        return [values, *node.apply("Cast", places, to=TensorProto.FLOAT)]

    @extend.lowers("Scaled", domain="com.mine")
    def scaled(node: extend.Node) -> list[SSAValue]:
        return node.apply("Scale", node[0], domain="ai.graphcore", scale=3.0)

    @extend.lowers("AtMost", domain="com.mine")
    def at_most(node: extend.Node) -> list[SSAValue]:
        return node.apply("Clip", node[0], None, node.scalar(4.0), opset=13)

    x = np.array([[3, 1, 2], [5, 9, 7]], np.float32)
    np.testing.assert_array_equal(results("AtMost", x, 1)[0], np.minimum(x, 4))
    values, places = results("Largest", x, 2)
    assert values.tolist() == [[3, 2], [9, 7]] and places.tolist() == [[0, 2], [1, 2]]
    np.testing.assert_array_equal(results("Scaled", x, 1)[0], 3 * x)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"op_type": "Add", "second": 2.0}, "input 1 of Add must be a value, not float"),
        ({"op_type": "Rellu"}, "no operator 'Rellu'"),
        ({"op_type": "Relu", "alpha": 1.0}, "alpha"),
        ({"op_type": "MatMul"}, "MatMul"),
        ({"op_type": "Cube", "domain": "com.unknown"}, "Cube"),
    ],
)
def test_mismatched_operators_are_refused(asked: Any, message: str) -> None:
    asked = dict(asked)
    name, more = asked.pop("op_type"), [asked.pop("second")] if "second" in asked else []
    other = extend.lowers("Other", domain="com.mine")
    other(lambda node: node.apply(name, node[0], *more, **asked))
    with pytest.raises(PopgraphError, match=message):
        results("Other", X, 1)


@pytest.mark.usefixtures("registries")
def test_popart_custom_op_libraries_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file replaces the program's library with the operator `LeakyCube` of `ai.graphcore`."""
    files = {
        "operators.py": """
            from popgraph.dialects import graphcore as gc
            from popgraph.extend import lowers

            @lowers("LeakyCube", domain="ai.graphcore")
            def leaky_cube(node):
                cube = gc.MulOp(node[0], gc.MulOp(node[0], node[0]))
                return gc.MaxOp(cube, gc.MulOp(node[0], node.scalar(node.real("alpha"))))
            """,
        "program.py": """
            import ctypes, numpy, popart

            ctypes.cdll.LoadLibrary("build/liboperators.so")
            builder = popart.Builder()
            x = builder.addInputTensor("FLOAT", [3])
            (y,) = builder.customOp("LeakyCube", 1, "ai.graphcore", [x], {"alpha": 0.5}, 1)
            device = popart.DeviceManager().createCpuDevice(backend="reference")
            flow = popart.DataFlow(1, [y])
            session = popart.InferenceSession(builder.getModelProto(), flow, device)
            session.prepareDevice()
            anchors = session.initAnchorArrays()
            session.run(popart.PyStepIO({x: numpy.array([-2, 0, 2], "f")}, anchors))
            print(anchors[y].tolist())
            """,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.setattr(libraries, "REPLACED", set())
    monkeypatch.setattr(ctypes.CDLL, "__init__", ctypes.CDLL.__init__)
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, *sys.argv[1:]], check=True)"
    )
    monkeypatch.chdir(tmp_path)
    try:
        for program in (["program.py"], ["parent.py", "program.py"]):
            run_command(monkeypatch, "--load", "liboperators.so=operators.py", *program)
            assert capfd.readouterr().out == "[-1.0, 0.0, 8.0]\n"
    finally:
        disable()
    with pytest.raises(OSError, match=r"other\.so"):
        ctypes.CDLL("build/other.so")
    with pytest.raises(ExtensionError, match="the operators of the library have no definition"):
        libraries.load_operators("liboperators.so=")


@pytest.mark.usefixtures("registries")
def test_invalid_registrations_are_refused() -> None:
    extend.add_pass(after="cse")(Spy)
    with pytest.raises(ExtensionError, match="duplicate pass 'spy'"):
        extend.add_pass(after="cse")(type("Other", (Spy,), {"name": "spy"}))
    with pytest.raises(ExtensionError, match="requires a position"):
        extend.add_pass()
    with pytest.raises(ExtensionError, match="both before cse and after dce"):
        extend.add_pass(before="cse", after="dce")
    for domain in ("", "ai.onnx", "ai.onnx.ml", "ai.graphcore", "com.microsoft"):
        with pytest.raises(ExtensionError, match="are defined elsewhere"):
            extend.lowers("Gelu", domain=domain)(lambda node: node[0])
    extend.lowers("Same", domain="ai.acme")(lambda node: node[0])  # From PopART's examples.
    extend.lowers("Same", domain="com.mine")(lambda node: node[0])
    with pytest.raises(ExtensionError, match=r"duplicate lowering of the operator com\.mine\.Same"):
        extend.lowers("Same", domain="com.mine")(lambda node: node[0])
    with pytest.raises(ExtensionError, match=r"operation name 'graphcore\.mine' is reserved"):
        extend.add_operator(type("Mine", (extend.Composite,), {"name": "graphcore.mine"}))
    with pytest.raises(ExtensionError, match=r"mine\.op cannot be lowered"):
        extend.add_operator(type("Mine", (extend.GraphcoreOp,), {"name": "mine.op"}))
    with pytest.raises(ExtensionError, match="target 'avx2' exists already"):
        extend.add_target(extend.Machine(name="avx2"))


@pytest.mark.usefixtures("registries")
def test_programs_of_scripts_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of scripts are not cached, since changes of their code are not tracked."""
    monkeypatch.setenv("POPGRAPH_PROGRAM_CACHE", "1")
    monkeypatch.setattr(program_key, "sources", lambda: "the same")
    module, _ = compiler.load(model())
    assert program_key.program_key(module, [Canonicalize()]) is not None
    assert program_key.program_key(module, [Canonicalize(), Spy()]) is None
    assert extensions.is_empty()
    extend.add_pass(after="cse")(Spy)
    assert not extensions.is_empty() and not extensions.is_known(__name__)
    assert program_key.program_key(module, [Canonicalize()]) is None


def test_load_takes_files_and_modules(tmp_path: Path) -> None:
    file = tmp_path / "my_broken_passes.py"
    file.write_text("raise KeyError('x')\n")
    with pytest.raises(ExtensionError, match="KeyError: 'x'"):
        extend.load(str(file))
    with pytest.raises(ExtensionError, match="there is no such file"):
        extend.load(str(tmp_path / "absent_passes.py"))
    with pytest.raises(ExtensionError, match="No module named 'absent_passes'"):
        extend.load("absent_passes")
    file.write_text("LOADED = 1\n")
    extend.load(str(file))
    extend.load(str(file))
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ExtensionError, match="module 'json' exists already"):
        extend.load(str(tmp_path / "json.py"))


BROKEN_MODULES = {
    "raises": ("raise KeyError('x')", "KeyError: 'x'"),
    "ends": ("import sys; sys.exit(0)", "SystemExit: 0"),
    "recurses": ("def f(): f()\nf()", "RecursionError: "),
    "imports_itself": ("from imports_itself import absent", "ImportError: "),
    "syntax": ("def", "SyntaxError: "),
    "no_text": ("\0", "SyntaxError: "),
    "extends_twice": ("from popgraph import extend\nextend.load('absent_one')", "'absent_one'"),
}


@pytest.mark.parametrize("name", BROKEN_MODULES)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_module_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_first: bool
) -> None:
    content, told = BROKEN_MODULES[name]
    file = tmp_path / f"{name}.py"
    file.write_text(f"print('noise')\n{content}\n")
    load = ["--load", str(file)]
    arguments = [*load, "ops", "Relu"] if is_first else ["ops", "Relu", *load]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1 and not done.stdout
    assert told in done.stderr and "Traceback" not in done.stderr
    nested = name == "extends_twice"
    assert f"at: --load {'absent_one' if nested else file}" in done.stderr
    if name not in ("syntax", "no_text"):
        assert f"--load {file}: noise\n" in done.stderr
    assert name not in sys.modules
    monkeypatch.setenv("POPGRAPH_DEBUG", "1")
    with pytest.raises(ExtensionError):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_prints_of_a_module_are_named_and_kept_out_of_the_output(tmp_path: Path) -> None:
    file = tmp_path / "prints_twice.py"
    file.write_text("print('one\\ntwo', end='')\nprint('', 3)\n")
    done = CliRunner().invoke(app, ["--load", str(file), "ops", "Relu"])
    assert done.exit_code == 0 and done.stdout.startswith("LeakyRelu")
    assert done.stderr == f"--load {file}: one\n--load {file}: two 3\n"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises an error here, also in a process of the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_long_import_is_named_when_it_is_interrupted(tmp_path: Path, interruptible: None) -> None:
    file = tmp_path / "long.py"
    file.write_text(
        "import os, signal, threading, time\n"
        "threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "time.sleep(20)\n"
    )
    done = CliRunner().invoke(app, ["--load", str(file), "ops", "Relu"])
    assert done.exit_code == 130 and f"interrupted in --load {file}\n" in done.stderr


def test_completion_in_a_shell_loads_no_module(tmp_path: Path) -> None:
    file, trace = tmp_path / "leaves_a_trace.py", tmp_path / "trace"
    file.write_text(f"open({str(trace)!r}, 'w').close()\n")
    for words in (f"popgraph --load {file} ops R", f"popgraph ops --load {file} R"):
        asked = {"_POPGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
        command = [sys.executable, "-m", "popgraph"]
        subprocess.run(command, env={**os.environ, **asked}, capture_output=True, check=False)
    assert not trace.exists()


def test_the_help_says_that_modules_are_code() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert "load only modules that you trust" in " ".join(done.stdout.split())


PATTERNS = """
import popart

popart.Patterns().enablePattern("TiedGatherPattern", False)
assert popart.Patterns().isPatternEnabled("TiedGatherPattern")
assert not popart.Patterns().isPatternEnabled("Sparse")
assert not popart.Patterns(popart.PatternsLevel.Minimal).isPatternEnabled("TiedGatherPattern")
assert popart.Patterns(["TiedGatherPattern"]).isPatternEnabled("TiedGatherPattern")
assert "TiedGatherPattern: On" in repr(popart.Patterns())
"""


def test_a_library_brings_the_names_of_its_patterns(tmp_path: Path) -> None:
    names = tmp_path / "names.py"
    names.write_text(
        "from popgraph.compat import add_pattern\n"
        "add_pattern('TiedGatherPattern')\n"
        "add_pattern('Sparse', enabled=False)\n"
    )
    compat = [sys.executable, "-m", "popgraph.compat"]
    subprocess.run([*compat, "--load", names, "-c", PATTERNS], check=True)
    alone = subprocess.run([*compat, "-c", PATTERNS], capture_output=True, text=True)
    assert "Unknown pattern TiedGatherPattern." in alone.stderr
