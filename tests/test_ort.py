"""Tests of `popgraph.ort`: onnxruntime's Python API, called as onnxruntime's own tests do."""

from __future__ import annotations

import ast
import inspect
import json
import logging
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import popgraph.ort as ort
from popgraph.ort import logs
from popgraph.ort.capi import onnxruntime_pybind11_state as state
from popgraph.ort.capi.onnxruntime_inference_collection import check_and_normalize_provider_args
from popgraph.ort.options import NOTES, settings_of
from popgraph.support.errors import PopgraphError

HEAD = '<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>'
MUL = "g(float[3, 2] X) => (float[3, 2] Y) <float[3, 2] W = {1, 2, 3, 4, 5, 6}> { Y = Mul(X, W) }"
ROWS = "g(float[N, 2] x, int64[2] k) => (float[N, 2] y) { y = Add(x, x) }"
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
ONES = {"x": np.ones((1, 2), np.float32), "k": np.zeros(2, np.int64)}
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "coming-from-onnxruntime.md"
EXAMPLE = ROOT / "examples" / "sessions.py"


def model(text: str) -> bytes:
    return parser.parse_model(f"{HEAD} {text}").SerializeToString()


def one_thread(**settings: Any) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    for name, value in settings.items():
        setattr(options, name, value)
    return options


@pytest.fixture(scope="module")
def mul() -> ort.InferenceSession:
    return ort.InferenceSession(model(MUL), one_thread(), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def rows() -> ort.InferenceSession:
    return ort.InferenceSession(model(ROWS), one_thread())


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test sees the notes of its own."""
    monkeypatch.setattr(logs, "noted", set())


def test_a_session_runs_from_a_file_and_from_bytes(tmp_path: Path) -> None:
    path = tmp_path / "mul.onnx"
    path.write_bytes(model(MUL))
    for given in (path, str(path), path.read_bytes()):
        session = ort.InferenceSession(given, one_thread())
        assert [one.name for one in session.get_inputs()] == ["X"]
        assert session.get_inputs()[0].shape == [3, 2]
        assert session.get_inputs()[0].type == "tensor(float)"
        (found,) = session.run(["Y"], {"X": X})
        np.testing.assert_array_equal(found, X * X)


@pytest.mark.parametrize("names", [None, [], ["Y"], ("Y",)])
def test_names_select_outputs(mul: ort.InferenceSession, names: Any) -> None:
    (found,) = mul.run(names, {"X": X}, run_options=ort.RunOptions())
    np.testing.assert_array_equal(found, X * X)


def test_lists_and_values_are_inputs(mul: ort.InferenceSession) -> None:
    for given in (X.tolist(), ort.OrtValue.ortvalue_from_numpy(X), X[:, [1, 0]][:, [1, 0]]):
        np.testing.assert_array_equal(mul.run(None, {"X": given})[0], X * X)


def test_symbolic_dimensions_are_names(rows: ort.InferenceSession) -> None:
    assert [one.shape for one in rows.get_inputs()] == [["N", 2], [2]]
    assert [one.type for one in rows.get_inputs()] == ["tensor(float)", "tensor(int64)"]
    assert rows.get_outputs()[0].shape == ["N", 2]


def test_an_output_that_is_an_input_has_memory_of_its_own() -> None:
    session = ort.InferenceSession(
        model("g(float[2] x) => (float[2] y, float[2] x) { y = Neg(x) }"), one_thread()
    )
    given = np.ones(2, np.float32)
    _, same = session.run(None, {"x": given})
    assert not np.shares_memory(same, given)


def test_strings_come_back_as_objects() -> None:
    session = ort.InferenceSession(model("g(string[2] x) => (string[2] y) { y = Identity(x) }"))
    assert session.get_inputs()[0].type == "tensor(string)"
    texts = np.array(["this", "Olá"], object)
    void = np.array([b"must", b"have"], np.void)
    for given in (texts, texts.astype(str), texts.tolist()):
        (found,) = session.run(None, {"x": given})
        assert found.dtype == object and found.tolist() == ["this", "Olá"]
    assert session.run(None, {"x": void})[0].tolist() == ["must", "have"]
    mixed = np.array([["a"], 3], object)  # as onnxruntime: by `str`
    assert session.run(None, {"x": mixed})[0].tolist() == ["['a']", "3"]
    assert session.run(None, {"x": np.array([b"a", b"bc"])})[0].tolist() == ["a", "bc"]


def test_sequences_are_lists() -> None:
    text = "g(int64[2] a, int64[2] b) => (seq(int64[2]) s) { s = SequenceConstruct(a, b) }"
    session = ort.InferenceSession(model(text), one_thread())
    assert session.get_outputs()[0].type == "seq(tensor(int64))"
    given = np.array([1, 2])
    (found,) = session.run(None, {"a": given, "b": given})
    assert [one.tolist() for one in found] == [[1, 2], [1, 2]]
    text = "g(seq(float[N, 2]) X) => (int64 Y) { Y = SequenceLength(X) }"
    session = ort.InferenceSession(model(text), one_thread())
    assert session.get_inputs()[0].type == "seq(tensor(float))"
    assert session.run(["Y"], {"X": [X, X]})[0] == 2


WRONG: dict[str, tuple[Any, Any, type, type, str]] = {
    "output": (["z"], ONES, state.InvalidArgument, PopgraphError, "Invalid output name:z"),
    "names": ("y", ONES, state.InvalidArgument, TypeError, r"\['y'\], or None"),
    "missing": (None, {"x": X}, state.InvalidArgument, ValueError, r"inputs \(\['k'\]\) are mis"),
    "unknown": (None, {**ONES, "kk": X}, state.InvalidArgument, PopgraphError, "mean 'k'"),
    "type": (None, {**ONES, "x": X.astype(float)}, state.InvalidArgument, PopgraphError, "double"),
    "rank": (None, {**ONES, "x": X[0]}, state.InvalidArgument, PopgraphError, "Invalid rank for"),
    "size": (None, {**ONES, "x": X.T}, state.InvalidArgument, PopgraphError, "Got: 3 Expected: 2"),
    "text": (None, {**ONES, "x": "abc"}, state.InvalidArgument, RuntimeError, "Unable to handle"),
    "ragged": (None, {**ONES, "x": [[1], [2, 3]]}, state.InvalidArgument, RuntimeError, "equal le"),
    "feed": (None, [X], state.InvalidArgument, TypeError, "session.run"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_raises_the_error_of_onnxruntime(
    rows: ort.InferenceSession, case: str
) -> None:
    names, feeds, kind, base, text = WRONG[case]
    with pytest.raises(kind, match=text) as caught:
        rows.run(names, feeds)
    assert isinstance(caught.value, base) and "\n  try: " in str(caught.value)


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ("absent.onnx", state.NoSuchFile, "File doesn't exist"),
        (b"abc", state.InvalidProtobuf, "not an ONNX model"),
        (3, TypeError, "Unable to load from type"),
        (onnx.ModelProto(), TypeError, "SerializeToString"),
        (model("g(float[2] x) => (float[2] y) { y = Frob(x) }"), state.InvalidGraph, "Frob"),
        (model("g(float[2] x) => (float[2] y) { y = Neg(q) }"), state.InvalidGraph, "'q'"),
        (model("g(float[2] x) => (int64[2] y) { y = Neg(x) }"), state.InvalidGraph, "declared"),
    ],
)
def test_a_wrong_model_raises_the_error_of_onnxruntime(given: Any, kind: type, text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        ort.InferenceSession(given)
    assert isinstance(caught.value, PopgraphError)


def test_options_have_checked_names_and_types() -> None:
    options = ort.SessionOptions()
    with pytest.raises(AttributeError, match="did you mean 'intra_op_num_threads'"):
        options.intra_op_threads = 2
    with pytest.raises(TypeError, match="must be int, not str"):
        options.intra_op_num_threads = "2"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="must be GraphOptimizationLevel"):
        options.graph_optimization_level = 99  # type: ignore[assignment]
    with pytest.raises(ValueError, match="positive integer"):
        options.add_free_dimension_override_by_name("N", -1)
    with pytest.raises(RuntimeError, match="does not have configuration with key: k"):
        options.get_session_config_entry("k")
    options.add_session_config_entry("k", "v")
    assert options.get_session_config_entry("k") == "v"
    with pytest.raises(state.NotImplemented, match=r"docs/extend\.md"):
        options.register_custom_ops_library("x.so")


def test_a_session_keeps_its_own_options(mul: ort.InferenceSession) -> None:
    mul.get_session_options().intra_op_num_threads = 7
    assert mul.get_session_options().intra_op_num_threads == 1


def test_a_note_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options = one_thread(graph_optimization_level=level)
    with caplog.at_level(logging.WARNING, "popgraph.ort"):
        for _ in range(2):
            session = ort.InferenceSession(model(MUL), options)
    (record,) = caplog.records
    assert record.getMessage().startswith("graph_optimization_level has no effect: ")
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * X)
    caplog.clear()
    ort.InferenceSession(model(MUL), one_thread(enable_mem_reuse=False, log_severity_level=3))
    assert not caplog.records


def test_a_callback_hears_messages() -> None:
    heard: list[Any] = []
    try:
        ort.set_default_logger_callback(lambda *message: heard.append(message), severity=0)
        ort.InferenceSession(model(MUL), one_thread(logid="me"))
    finally:
        ort.set_default_logger_callback(None)
        ort.set_default_logger_severity(2)
    assert heard and {tuple(map(type, one)) for one in heard} == {(int, str, str, str, str)}
    for wrong in (("no", 0), (print, 5), (print, -1)):
        with pytest.raises(RuntimeError):
            ort.set_default_logger_callback(*wrong)


@pytest.mark.parametrize("by", ["name", "denotation"])
def test_free_dimensions_get_sizes(by: str) -> None:
    proto = parser.parse_model(f"{HEAD} g(float[A, B, 5] x) => (float[A, B, 5] y) {{ y = Abs(x) }}")
    for dim, text in zip(proto.graph.input[0].type.tensor_type.shape.dim, ["ROW", "COL"]):  # noqa: B905
        dim.denotation = text
    options = one_thread()
    for name, size in (("A", 4), ("B", 6)) if by == "name" else (("ROW", 4), ("COL", 6)):
        getattr(options, f"add_free_dimension_override_by_{by}")(name, size)
    session = ort.InferenceSession(proto.SerializeToString(), options)
    assert session.get_inputs()[0].shape == session.get_outputs()[0].shape == [4, 6, 5]
    with pytest.raises(state.InvalidArgument, match="Got: 3 Expected: 4"):
        session.run(None, {"x": np.ones((3, 6, 5), np.float32)})


def test_initializers_are_replaced() -> None:
    options = one_thread()
    options.add_initializer("W", ort.OrtValue.ortvalue_from_numpy(X[::-1]))
    session = ort.InferenceSession(model(MUL), options)
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * X[::-1])
    options = one_thread()
    options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(X))
    with pytest.raises(state.InvalidArgument, match="did you mean 'W'"):
        ort.InferenceSession(model(MUL), options)
    options = one_thread()
    options.add_initializer("W", ort.OrtValue.ortvalue_from_numpy(X[0]))
    with pytest.raises(state.InvalidArgument, match="same type and shape"):
        ort.InferenceSession(model(MUL), options)


def test_initializers_that_are_inputs_may_be_given() -> None:
    text = "g(float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"
    session = ort.InferenceSession(model(text), one_thread())
    assert [one.name for one in session.get_inputs()] == ["x"]
    assert [one.name for one in session.get_overridable_initializers()] == ["w"]
    two = np.full(2, 2, np.float32)
    assert session.run(None, {"x": two})[0].tolist() == [2, 4]
    assert session.run(None, {"x": two, "w": two})[0].tolist() == [4, 4]


def test_the_optimized_model_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    ort.InferenceSession(model(MUL), one_thread(optimized_model_filepath=str(path)))
    onnx.checker.check_model(onnx.load(path))


def test_a_profile_has_an_event_for_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = ort.InferenceSession(model(MUL), one_thread(enable_profiling=True))
    session.run(None, {"X": X})
    session.run(None, {"X": X})
    assert session.get_profiling_start_time_ns() > 0
    events = json.loads(Path(session.end_profiling()).read_text())
    assert [event["name"] for event in events] == ["model_loading", "model_run", "model_run"]
    assert session.end_profiling() == ""


def test_metadata_are_those_of_the_model() -> None:
    proto = parser.parse_model(f"{HEAD} {MUL}")
    assert ort.InferenceSession(proto.SerializeToString(), one_thread()).get_modelmeta() == (
        ort.ModelMetadata(graph_name="g")
    )
    proto.producer_name, proto.domain, proto.doc_string = "us", "org", "text"
    proto.model_version, proto.graph.doc_string = 3, "graph's"
    proto.metadata_props.add(key="k", value="v")
    meta = ort.InferenceSession(proto.SerializeToString(), one_thread()).get_modelmeta()
    assert meta == ort.ModelMetadata("us", "g", "org", "text", "graph's", 3, {"k": "v"})


def test_values_hold_arrays(mul: ort.InferenceSession) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X.copy())
    assert (value.device_name(), value.shape(), value.data_type()) == (
        "cpu",
        [3, 2],
        "tensor(float)",
    )
    assert (value.element_type(), value.tensor_size_in_bytes()) == (1, 24)
    assert value.is_tensor() and value.has_value() and not value.is_sparse_tensor()
    assert value.data_ptr() == np.asarray(value).ctypes.data
    (found,) = mul.run_with_ort_values(["Y"], {"X": value})
    np.testing.assert_array_equal(found.numpy(), X * X)
    value.update_inplace(X[::-1])
    np.testing.assert_array_equal(value.numpy(), X[::-1])
    for wrong in (
        lambda: value.update_inplace(X[0]),
        lambda: ort.OrtValue.ortvalue_from_numpy([1]),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(RuntimeError, match="no device 'cuda'"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    half = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2, np.uint16), 16)
    assert half.data_type() == "tensor(bfloat16)" and half.element_type() == 16
    again = ort.OrtValue.from_dlpack(value.__dlpack__())
    assert again.data_ptr() == value.data_ptr() and value.__dlpack_device__() == (1, 0)
    assert ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64).shape() == [2, 3]
    assert np.shares_memory(ort.OrtValue.from_dlpack(X).numpy(), X)


def test_bound_memory_is_read_and_filled(mul: ort.InferenceSession) -> None:
    binding, made, given = mul.io_binding(), np.zeros_like(X), np.ascontiguousarray(X)
    binding.bind_input("X", "cpu", 0, np.float32, X.shape, given.ctypes.data)
    binding.bind_output("Y", "cpu", 0, np.float32, made.shape, made.ctypes.data)
    mul.run_with_iobinding(binding)
    np.testing.assert_array_equal(made, X * X)
    (copied,) = binding.copy_outputs_to_cpu()
    assert not np.shares_memory(copied, made)
    binding.clear_binding_outputs()
    value = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], 1)
    binding.bind_ortvalue_output("Y", value)
    binding.bind_cpu_input("X", -X)
    mul.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), -X * X)
    with pytest.raises(RuntimeError, match="no output 'Z'"):
        binding.bind_output("Z")
    binding.bind_cpu_input("X", X.astype(np.int64))
    with pytest.raises(RuntimeError, match="Unexpected input data type"):
        mul.run_with_iobinding(binding)


def test_a_run_in_a_thread_calls_back(mul: ort.InferenceSession) -> None:
    heard, done = [], threading.Event()

    def callback(found: list[Any], data: Any, error: str) -> None:
        heard.append((found, data, error))
        done.set()

    mul.run_async(["Y"], {"X": X}, callback, 7)
    assert done.wait(60)
    done.clear()
    mul.run_async(["Y"], {"X": X[0]}, callback, 8)
    assert done.wait(60)
    (first, second) = heard
    np.testing.assert_array_equal(first[0][0], X * X)
    assert first[1:] == (7, "") and second[:2] == ([], 8) and "Invalid rank" in second[2]


def test_a_terminated_run_fails(mul: ort.InferenceSession) -> None:
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(state.Fail, match="terminate flag"):
        mul.run(None, {"X": X}, options)


def test_providers_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    session = ort.InferenceSession(
        model(MUL), one_thread(), providers=[("CUDAExecutionProvider", {"device_id": 0})]
    )
    assert "'CUDAExecutionProvider' is not available" in caplog.text
    assert session.get_providers() == ort.get_available_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert ort.get_all_providers()[-1] == "CPUExecutionProvider" and ort.get_device() == "CPU"
    with pytest.raises(RuntimeError, match="Unknown Provider Type: CUDAProvider"):
        session.set_providers(["CUDAProvider"])


def test_arguments_of_providers_are_checked() -> None:
    known, check = ["a", "b"], check_and_normalize_provider_args
    assert check(None, None, known) == ([], [])
    assert check([("a", {1: 2}), "b"], None, known) == (["a", "b"], [{"1": "2"}, {}])
    assert check(["a", "b"], [{1: 2}, {}], known) == (["a", "b"], [{"1": "2"}, {}])
    with pytest.warns(UserWarning, match="listed twice"):
        assert check(["a", "a"], [{}, {"x": 1}], known) == (["a"], [{}])
    for names, options in ((3, None), ([3], None), (["a"], 3), (["a"], ["x"]), (["a"], [{}, {}])):
        with pytest.raises(ValueError):
            check(names, options, known)
    with pytest.raises(ValueError, match="both"):
        check([("a", {1: 2})], [{3: 4}], known)


def test_a_backend_prepares_and_runs() -> None:
    from popgraph.ort import backend

    made = backend.prepare(parser.parse_model(f"{HEAD} {MUL}"), "CPU", intra_op_num_threads=1)
    for given in (X, {"X": X}):
        np.testing.assert_array_equal(made.run(given)[0], X * X)
    with pytest.raises(ValueError, match="no device 'GPU'"):
        backend.prepare(model(MUL), "GPU")


def test_the_example_runs_with_either_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="the example runs with it, too")
    text = EXAMPLE.read_text().replace("import popgraph.ort as onnxruntime", "import onnxruntime")
    theirs = tmp_path / "theirs.py"
    theirs.write_text(text.replace("from popgraph.ort", "from onnxruntime"))
    printed = []
    for path in (EXAMPLE, theirs):
        runpy.run_path(str(path), run_name="__main__")
        printed.append(capsys.readouterr().out.splitlines())
    assert printed[0][:5] == printed[1][:5] and len(printed[0]) > 5


def test_memory_is_described(mul: ort.InferenceSession) -> None:
    (info,), kind = mul.get_input_memory_infos(), ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    assert info.name == mul.get_output_memory_infos()[0].name == "Cpu"
    assert ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT).allocator_type == kind
    assert mul.get_input_epdevices() == [None]
    assert ort.OrtArenaCfg(8, 0, 4, 2).max_dead_bytes_per_chunk == 2
    assert ort.OrtArenaCfg({"max_mem": 16, "arena_extend_strategy": 1}).max_mem == 16
    with pytest.raises(AttributeError, match="no option 'size'"):
        ort.OrtArenaCfg({"size": 1})


def test_maps_are_dicts() -> None:
    text = (
        'g(float[N, 2] x) => (y) { y = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b"]> (x) }'
    )
    session = ort.InferenceSession(model(text), one_thread())
    assert session.get_outputs()[0].type == "seq(map(string,tensor(float)))"
    assert session.run(None, {"x": X[:1]})[0] == [{"a": 1, "b": 2}]


def test_an_absent_name_has_a_hint() -> None:
    with pytest.raises(AttributeError, match="try: InferenceSession"):
        _ = ort.InferenceSesion
    with pytest.raises(AttributeError, match=r"popgraph\.train"):
        _ = ort.training


def test_an_output_that_is_listed_twice_is_returned_once() -> None:
    """Programs know their outputs by name; the page says so."""
    text = "g(float[2] x) => (float[2] y, float[2] z, float[2] y) { y = Abs(x) z = Neg(x) }"
    session = ort.InferenceSession(model(text), one_thread())
    feeds = {"x": np.array([1, -2], np.float32)}
    assert [one.name for one in session.get_outputs()] == ["y", "z"]
    assert len(session.run(None, feeds)) == 2
    assert [one.tolist() for one in session.run(["y", "y"], feeds)] == [[1, 2], [1, 2]]


def test_a_fresh_process_starts_without_the_compiler() -> None:
    code = (
        "import sys, popgraph.ort as onnxruntime\n"
        "assert 'numpy' not in sys.modules, 'slow import'\n"
        "onnxruntime.InferenceSession\n"
        "assert not {'xdsl', 'onnx', 'onnxruntime'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_page_lists_every_option_with_a_note() -> None:
    page = PAGE.read_text()
    assert [name for name in NOTES if f"`{name}`" not in page] == []


def test_names_are_those_of_onnxruntime() -> None:
    peer = pytest.importorskip("onnxruntime", reason="the peer whose names these are")
    assert [name for name in ort.__all__ if not hasattr(peer, name)] == []
    own = {"NodeArg": {"of", "rank"}}
    for name in ("InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "IOBinding"):
        extra = {one for one in dir(getattr(ort, name)) if not one.startswith("_")}
        assert extra - set(dir(getattr(peer, name))) - own.get(name, set()) == set(), name
    for options in ("SessionOptions", "RunOptions"):
        ours, theirs = getattr(ort, options)(), getattr(peer, options)()
        for name in settings_of(type(ours)):
            assert str(getattr(ours, name)) in str(getattr(theirs, name)) or (
                getattr(ours, name) == int(getattr(theirs, name))
            ), name
    native = peer.capi.onnxruntime_pybind11_state
    errors = {one for one, kind in vars(native).items() if _is_error(kind)}
    assert {one for one, kind in vars(state).items() if _is_error(kind)} == errors


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def test_every_setting_is_used_or_noted() -> None:
    """`log_verbosity_level` and `use_deterministic_compute` are always satisfied."""
    quiet = {"log_verbosity_level", "use_deterministic_compute"}
    room = Path(inspect.getfile(ort)).parent
    read = {
        node.attr
        for path in room.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    settings = set(settings_of(ort.SessionOptions))
    assert settings - read - set(NOTES) - quiet == set()
    assert re.search(r"^\| `SessionOptions`", PAGE.read_text(), re.M)
