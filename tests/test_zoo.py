"""Tests `popgraph.zoo`: every network trains, has its published size, and takes parameters."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph import zoo
from popgraph.builder.pgraph import parse
from popgraph.builder.pgraph.print.formatter import format_text
from popgraph.cli import app
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.sklearn import Classifier
from popgraph.support.errors import PopgraphError

PAGE = Path(__file__).parents[1] / "docs/zoo.md"
RNG = np.random.default_rng(0)
TINY = {"width": 24, "heads": 2, "layers": 1}
TEXT = {"vocabulary": 50, "context": 16, **TINY}
WORDS = RNG.integers(1, 50, (8, 12))
"""Sentences of 12 words."""


def images(count: int, channels: int, size: int) -> Any:
    return RNG.normal(size=(count, channels, size, size)).astype(np.float32)


def classes(*shape: int) -> Any:
    return RNG.integers(0, 2, shape)


SMALL: dict[str, tuple[dict[str, object], tuple[Any, ...]]] = {
    "lenet": ({"classes": 2, "size": 16}, (images(16, 1, 16), classes(16))),
    "resnet18": (
        {"classes": 2, "width": 4, "blocks": [1, 1, 1, 1]},
        (images(8, 3, 32), classes(8)),
    ),
    "resnet50": (
        {"classes": 2, "width": 4, "blocks": [1, 1, 0, 0]},
        (images(8, 3, 32), classes(8)),
    ),
    "mobilenet_v2": (
        {"classes": 2, "first": 8, "last": 16, "stages": [[1, 8, 1, 1], [4, 8, 2, 1]]},
        (images(8, 3, 16), classes(8)),
    ),
    "vit_tiny": ({"classes": 2, "size": 16, "patch": 8, **TINY}, (images(8, 3, 16), classes(8))),
    "unet": ({"width": 4, "depth": 1}, (images(2, 3, 8), classes(2, 8, 8))),
    "bert_tiny": (TEXT, (WORDS, classes(8))),
    "lstm_tagger": (
        {"vocabulary": 50, "tags": 2, "width": 8, "hidden": 8},
        (WORDS, classes(8, 12)),
    ),
    "gpt": (TEXT, (WORDS,)),
    "resnet8": ({"classes": 2, "width": 4, "size": 8}, (images(8, 3, 8), classes(8))),
    "ds_cnn": (
        {"classes": 2, "width": 8, "blocks": 1, "dropout": [0.0, 0.0]},
        (images(8, 1, 49)[..., :10], classes(8)),
    ),
    "mobilenet_v1": (
        {"classes": 2, "size": 8, "blocks": [[8, 1], [16, 2]], "last": 16},
        (images(8, 3, 8), classes(8)),
    ),
    "autoencoder": ({"features": 20, "width": 8, "layers": 1}, (images(16, 1, 20)[:, 0, 0],)),
}
"""Parameters of a small network, and its data."""
SAME = {"resnet34": "resnet18"}
"""Networks that differ from a tested one in numbers only."""


def test_every_text_is_tested_and_formatted() -> None:
    assert set(zoo.names()) == {*SMALL, *SAME}
    files = {zoo.entry(name).path for name in zoo.names()}
    assert files == set(zoo.FOLDER.glob("*.pgraph"))
    for path in files:
        assert format_text(path.read_text()) == path.read_text(), path.name
    for name, other in SAME.items():
        assert zoo.entry(name).file == zoo.entry(other).file


@pytest.mark.budget(3)
@pytest.mark.parametrize("name", SMALL)
def test_a_network_trains_and_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the oracle for whole networks")
    parameters, data = SMALL[name]
    text = zoo.load(name, **parameters)
    trainer = popgraph.train(text, data, optimizer="Adam(0.02)", epochs=12)
    losses = trainer.history["loss"]
    assert losses[-1] < 0.97 * losses[0]
    trainer.save(tmp_path / "net.onnx")
    session = runtime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {session.get_inputs()[0].name: data[0]})
    np.testing.assert_allclose(trainer.predict(data[0]), expected, rtol=1e-3, atol=1e-4)
    if name == "bert_tiny":  # Padding changes nothing.
        padded = trainer.predict(np.pad(data[0], ((0, 0), (0, 3))))
        np.testing.assert_allclose(padded, expected, rtol=1e-3, atol=1e-4)


PUBLISHED = {
    "lenet": 61_706,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "mobilenet_v2": 3_504_872,
    "vit_tiny": 5_717_416,
    "bert_tiny": 4_385_920 - 2 * 128 + 2 * 129,
}
"""Weights of the published networks. Our BERT has no segments, and two classes."""
WITH_STATISTICS = {
    "resnet8": 78_666,
    "ds_cnn": 24_908,
    "mobilenet_v1": 221_794,
    "autoencoder": 269_992,
}
"""Numbers of MLPerf Tiny's networks, whose Keras counts the statistics of BatchNormalization."""


@pytest.mark.parametrize("name", zoo.names())
def test_the_page_states_the_number_of_weights(name: str) -> None:
    document = parse(zoo.load(name))
    assert not document.warnings
    found = weights_by_name(model_of(document.module).graph)
    sizes = {key: prod(one.value.type.get_shape()) for key, one in found.items()}
    count = sum(size for key, size in sizes.items() if not key.endswith(("/mean", "/variance")))
    assert count == PUBLISHED.get(name, count)
    assert sum(sizes.values()) == WITH_STATISTICS.get(name, sum(sizes.values()))
    entry = zoo.entry(name)
    start = f"| [`{name}`](../popgraph/zoo/{entry.file}) | {entry.about} | {count:,} |"
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith(start))
    assert all(f"`{parameter}`" in row for parameter in entry.parameters)


def test_parameters_replace_let_lines_and_nothing_else() -> None:
    usual, changed = zoo.resnet50(), zoo.resnet50(classes=np.int64(10), blocks=(1, 2, 1, 1))
    differing = [
        pair
        for pair in zip(usual.split("\n"), changed.split("\n"), strict=True)
        if len({*pair}) > 1
    ]
    assert differing == [
        ("let classes = 1000", "let classes = 10"),
        (
            "let blocks = [3, 4, 6, 3]  # of each stage",
            "let blocks = [1, 2, 1, 1]  # of each stage",
        ),
    ]
    assert zoo.load("ResNet-50", classes=10) == zoo.resnet50(classes=10)
    assert zoo.parameters("resnet18")["blocks"] == [2, 2, 2, 2]
    assert "patches" not in zoo.parameters("vit_tiny")
    one = zoo.mobilenet_v2(stages=[[1, 16, 1, 1]])
    assert "let stages = [[1, 16, 1, 1]]\n" in one and zoo.mobilenet_v2(dropout=0) != one


def test_an_estimator_takes_a_network() -> None:
    small = zoo.lenet(classes=2, size=12)
    x = images(3, 1, 12).reshape(3, -1)
    fitted = Classifier(zoo.lenet, max_iter=2, n_iter_no_change=None)
    with pytest.raises(PopgraphError, match="lenet takes parameters by name"):
        fitted.fit(x, [0, 1, 1])
    assert set(fitted.set_params(model=small).fit(x, [0, 1, 1]).predict(x)) <= {0, 1}


def test_a_gpt_generates() -> None:
    tokens = popgraph.generate(zoo.gpt(**TEXT, dropout=0.0), [1, 2, 3], max_new_tokens=2)
    assert tokens.shape == (2,)


def test_the_command_lists_prints_and_writes(tmp_path: Path) -> None:
    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["zoo", *map(str, arguments)])

    listed = run()
    assert [line.split()[0] for line in listed.output.splitlines()] == zoo.names()
    assert run("lenet").output == zoo.lenet()
    path = tmp_path / "net.pgraph"
    blocks = ["blocks=[1, 1, 1, 1]", "bottleneck=false", "classes=5"]
    assert run("resnet50", *blocks, "-o", path).exit_code == 0
    wanted = zoo.resnet50(blocks=[1, 1, 1, 1], bottleneck=False, classes=5)
    assert path.read_text() == wanted
    wrong = run("lenet", "-o", tmp_path / "net.onnx")
    assert wrong.exit_code == 2 and "must end in .pgraph" in wrong.output


@pytest.mark.parametrize(
    "name, parameters, message, hint",
    [
        ("resnet188", {}, "no network 'resnet188'", "did you mean 'resnet18'"),
        ("lenet", {"clases": 3}, "lenet has no parameter 'clases'", "did you mean 'classes'"),
        ("vit_tiny", {"patches": 3}, "no parameter 'patches'", "did you mean 'patch'"),
        ("lenet", {"classes": 3.5}, "'classes' is an integer, not 3.5", "classes=10"),
        ("lenet", {"classes": True}, "'classes' is an integer, not True", ""),
        ("resnet50", {"blocks": 3}, "'blocks' is a list, not 3", "[3, 4, 6, 3]"),
        ("resnet50", {"blocks": ["a"]}, "'blocks' is an integer, not 'a'", ""),
        ("resnet50", {"bottleneck": 1}, "'bottleneck' is true or false, not 1", ""),
    ],
)
def test_mistakes_name_the_nearest(
    name: str, parameters: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(PopgraphError) as caught:
        zoo.load(name, **parameters)
    assert message in str(caught.value) and hint in caught.value.hint


def test_a_misspelt_attribute_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no network 'lenett'\n  try: lenet"):
        zoo.lenett  # noqa: B018
