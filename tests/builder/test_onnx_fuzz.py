"""Fuzzes ONNX models: mutants end in a right answer or an error, within limits."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from onnx import ModelProto, TensorProto, load_from_string

import popgraph
from popgraph.support.errors import PopgraphError
from tests.judging import Opened, Verdict, difference, in_time, judged
from tests.onnx_mutants import mutant, node_models, own_models, some_bytes
from tests.peer import answers

IS_LONG = settings().max_examples > 20
MUTANTS = 10_000 if IS_LONG else 150
IN_C = 25
"""One mutant in this many also runs in C."""
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)

OPENED = Opened()


@pytest.fixture(autouse=True)
def nothing_written() -> Iterator[None]:
    """Fails if a file is written outside of the temporary folder and the cache."""
    OPENED.watching, OPENED.written = True, []
    yield
    OPENED.watching = False
    allowed = (tempfile.gettempdir(), os.environ["POPGRAPH_CACHE_DIR"], "/dev/null")
    outside = [path for path in OPENED.written if not path.startswith(allowed)]
    assert not [path for path in outside if not path.isdigit()]


def wrong(verdicts: dict[int, Verdict]) -> list[str]:
    return [
        f"mutant {number}: {verdict.kind}: {verdict.what}"
        for number, verdict in verdicts.items()
        if not verdict.is_right
    ]


@pytest.mark.parametrize("kind", ["own", "node"])
def test_fuzz_of_models(kind: str, tmp_path: Path) -> None:
    seeds = own_models() if kind == "own" else node_models()
    verdicts = {
        number: judged(mutant(Random(number), seeds), in_c=number % IN_C == 0)
        for number in range(MUTANTS)
    }
    assert not wrong(verdicts)
    counts = Counter(verdict.kind for verdict in verdicts.values())
    assert min(counts["refused"], counts["ran"]) > MUTANTS // 10
    if find_spec("onnxruntime"):
        assert not unlike_the_peer(verdicts, seeds, tmp_path)


def unlike_the_peer(
    verdicts: dict[int, Verdict], seeds: Sequence[ModelProto], folder: Path
) -> list[str]:
    """The mutants that both runtimes run, but with different results."""
    ran = {number: mutant(Random(number), seeds) for number, one in verdicts.items() if one.outputs}
    compared = {number: data for number, data in ran.items() if is_comparable(data)}
    cases = [(data, verdicts[number].inputs) for number, data in compared.items()]
    found = []
    for number, theirs in zip(compared, answers(cases, folder), strict=True):
        if isinstance(theirs, str):
            continue
        if other := difference(verdicts[number].outputs, theirs):
            found.append(f"mutant {number}: {other}")
    return found


def is_comparable(data: bytes) -> bool:
    """Whether results are defined: casts out of range and random numbers are not."""
    model = load_from_string(data)
    nodes = [*model.graph.node, *(node for one in model.functions for node in one.node)]
    operators = {node.op_type for node in nodes}
    types = {info.type.tensor_type.elem_type for info in model.graph.input}
    odd = ("Cast", "Random", "Bernoulli", "Dropout", "Mod")
    return types <= set(FLOATS) and not any(name.startswith(odd) for name in operators)


NAMES = ("w.bin", "../secret.bin", "sub/../w.bin", "/etc/hostname", "loop", "a\0b", "x" * 300, "")
NUMBERS = ("0", "8", "-8", "16", "9223372036854775808", "1e3", "x", "")


def test_fuzz_of_external_data(tmp_path: Path) -> None:
    """No file outside of the model's folder is read, for any location that the model names."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "w.bin").write_bytes(bytes(range(64)))
    os.symlink("loop", folder / "loop")
    os.symlink("../secret.bin", folder / "link")
    OPENED.read = []
    counts = Counter(external(folder, Random(number)) for number in range(MUTANTS))
    assert counts["refused"] > 10
    assert counts["read"]
    assert not [path for path in OPENED.read if "secret" in path or "hostname" in path]


def external(folder: Path, random: Random) -> str:
    """Reads a model with a tensor in an external file."""
    model = ModelProto()
    model.CopyFrom(own_models()[0])
    tensor = model.graph.initializer[1]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    chosen = random.choice(NAMES) if random.random() < 0.7 else "link"
    tensor.external_data.add(key="location", value="w.bin" if random.random() < 0.4 else chosen)
    for key in ("offset", "length"):
        if random.random() < 0.5:
            tensor.external_data.add(key=key, value=random.choice(NUMBERS))
    data = model.SerializeToString()
    path = folder / "m.onnx"
    path.write_bytes(some_bytes(random, data) if random.random() < 0.2 else data)
    with in_time():
        try:
            popgraph.compile(path, backend="reference")
        except PopgraphError as error:
            assert error.what
            return "refused"
    return "read"
