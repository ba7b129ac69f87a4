"""Tests the viewer's page of a modelled IPU: numbers of the report, links both ways, charts."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import decompress

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.ipu.view import equivalent_nodes
from popgraph.support.arrays import Array
from tests.viewer.tabs import opened

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits_cnn.pgraph"
TURNING = """graph turning(x: f32[64, 64], c: bool) -> (y) {
    weight w: f32[64, 64] = glorot_uniform
    h = loop i in 0..5 with h = x {
        h = Tanh(h @ w)
    }
    z = if c { z = Relu(h) } else { z = Softmax(h @ h) }
    y = z + x
}
"""


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@cache
def page_of(*arguments: str) -> str:
    """The page that `popgraph view` saves."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        run("view", *arguments, "--save", page)
        return page.read_text()


def part_of(page: str) -> dict[str, Any]:
    _, _, rest = page.partition('id="part-ipu">')
    found: dict[str, Any] = json.loads(rest.partition("</script>")[0])
    return found


def vectors_of(part: Mapping[str, Any]) -> Array:
    """A row of numbers for all tiles for each vector, unpacked as the page does."""
    numbers = np.frombuffer(decompress(b64decode(part["vectors"]["zlib"])), "<f8")
    return numbers.reshape(-1, part["vectors"]["tiles"])


@pytest.fixture(params=["digits", "digits in training", "turning"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data that the viewer shows of a program, and the report of `popgraph profile`."""
    asked = [str(DIGITS), "--dim", "N=4", "--device", "ipu:2:24"]
    if request.param == "digits in training":
        asked.append("--train")
    if request.param == "turning":
        text = tmp_path / "turning.pgraph"
        text.write_text(TURNING)
        asked = [str(text), "--device", "ipu1:1:16"]
    kept = tmp_path / "kept.json"
    run("profile", *asked, "--json", kept)
    return part_of(page_of(*asked)), json.loads(kept.read_text())


def test_the_page_shows_the_numbers_of_the_report(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    shown, report = both
    assert shown["cycles"] == report["cycles"] and shown["flops"] == report["flops"]
    top = [step for step in shown["steps"] if step["above"] is None]
    assert [step["cycles"] for step in top] == [step["cycles"] for step in report["steps"]]
    ran = [step for step in shown["steps"] if "turns" not in step]
    for spent in ("compute", "exchange", "sync"):
        assert sum(step[spent] * step["times"] for step in ran) == report["cycles"][spent]
        assert all(step["cycles"] >= step[spent] for step in shown["steps"])
    vectors, memory = vectors_of(shown), shown["memory"]
    always = sum(vectors[number] for number in memory["always"].values())
    assert (always + vectors[memory["peak"]]).tolist() == report["memory"]["byTile"]
    assert memory["fullestTile"] == report["memory"]["fullestTile"]
    totals = [moment["total"] for moment in report["memory"]["liveness"]]
    assert max(shown["liveness"]["total"]) == max(totals)


def test_tensors_add_up_to_the_live_bytes_of_each_step_and_tile(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    shown, _ = both
    vectors, liveness = vectors_of(shown), shown["liveness"]
    others = [one for one in shown["tensors"] if not one["category"]]
    peak = np.zeros(vectors.shape[1])
    for step, temporary in enumerate(liveness["temporary"]):
        alive = [vectors[one["bytes"]] for one in others if one["first"] <= step <= one["last"]]
        on_tiles = sum(alive, vectors[temporary])
        assert on_tiles.sum() == liveness["total"][step]
        assert on_tiles.max() == liveness["largest"][step]
        peak = np.maximum(peak, on_tiles)
    assert (peak == vectors[shown["memory"]["peak"]]).all()
    for category in ("variables", "constants"):
        held = [vectors[one["bytes"]] for one in shown["tensors"] if one["category"] == category]
        number = shown["memory"]["always"].get(category)
        assert number is not None or not held
        assert number is None or (sum(held) == vectors[number]).all()


def test_steps_link_to_nodes_and_tensors_to_steps() -> None:
    document = popgraph.view(DIGITS, sizes={"N": 2}, device="ipu:1:16").document
    shown, lowered = document.part("ipu"), document.part("lowered")
    nodes = document.part("model")["graph"]
    kinds = {nodes[one]["kind"] for row in shown["operations"] for one in row["onnx"]}
    assert {"Conv", "Relu", "MaxPool", "Softmax"} <= kinds
    core = lowered["graphs"]["graphcore"]
    for row in shown["operations"]:
        assert row["graphcore"] and "mapping = #tile.mapping<" in row["text"]
        assert {one for number in row["graphcore"] for one in core[number]["sources"]} == set(
            row["onnx"]
        )
    for tensor in shown["tensors"]:
        assert tensor["operation"] is not None or tensor["category"], tensor
    weights = {one["name"] for one in shown["tensors"] if one["category"] == "constants"}
    assert {"w1", "w2"} <= weights


def test_twins_match_operations_by_kind_and_source() -> None:
    def node(number: int, kind: str, sources: list[int]) -> dict[str, Any]:
        return {"id": number, "kind": kind, "name": "", "sources": sources, "outputs": []}

    own = [node(0, "add", [1]), node(1, "add", [1]), node(2, "reduce", [2])]
    shown = [node(0, "add", [0]), node(1, "add", [1]), node(2, "words", [2]), node(3, "add", [1])]
    assert equivalent_nodes(own, shown) == {0: 1, 1: 3}


def test_without_a_device_there_is_no_ipu_view() -> None:
    document = popgraph.view(DIGITS, sizes={"N": 2}).document
    assert "ipu" not in document.parts and not document.part("model")["ipu"]
    with pytest.raises(popgraph.PopgraphError, match="unknown device 'gpu'"):
        popgraph.view(DIGITS, device="gpu")


def test_an_unknown_device_ends_the_command() -> None:
    done = CliRunner().invoke(app, ["view", str(DIGITS), "--device", "gpu"])
    assert done.exit_code == 2 and "unknown device" in done.output


def test_models_with_host_steps_have_no_ipu_model(tmp_path: Path) -> None:
    path = tmp_path / "net.pgraph"
    path.write_text("graph g(x: f32[3]) -> (y) {\n  y = Cast(NonZero(Relu(x)), to=f32)\n}\n")
    shown = popgraph.view(path, device="ipu").document.part("ipu")
    assert "the output size of NonZero depends on data" in shown["error"]["what"]


@pytest.fixture
def tab(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The open page with the IPU view of a small network."""
    path = tmp_path / "page.html"
    path.write_text(page_of(str(DIGITS), "--dim", "N=4", "--device", "ipu:2:24"))
    with opened(browser, path.as_uri()) as shown:
        shown.click("[data-view=ipu]")
        shown.wait_for_selector(".strip canvas")
        yield shown


def test_pointer_and_keys_describe_tiles_and_a_click_selects_one(tab: Any) -> None:
    chart, told = tab.query_selector_all(".strip canvas")[0], ".strip .told"
    assert "2 IPUs says (ipu2, each with 24 tiles of 624 KiB)" in tab.inner_text(".lead")
    chart.focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    assert tab.inner_text(told).startswith("tile 2 (IPU 0): ")
    assert chart.get_attribute("aria-valuetext").startswith("tile 2 (IPU 0): ")
    tab.keyboard.press("End")
    tab.keyboard.press("Enter")
    assert tab.inner_text("#right h2") == "tile 47 (IPU 1)"
    box = chart.bounding_box()
    chart.click(position={"x": 64 + (box["width"] - 76) * 5.5 / 48, "y": 100})
    assert tab.inner_text("#right h2") == "tile 5 (IPU 0)"
    assert tab.input_value(".wishes input[type=number]") == "5"
    tab.fill(".wishes input[type=number]", "30")
    tab.keyboard.press("Tab")
    assert tab.inner_text("#right h2") == "tile 30 (IPU 1)"
    tab.select_option("[aria-label='whose memory']", "alone")
    assert "on tile 30 (IPU 1)" in tab.inner_text(".strip + div h3")


def test_a_chart_zooms_in_and_out(tab: Any) -> None:
    chart = tab.query_selector_all(".strip canvas")[0]
    box = chart.bounding_box()
    tab.mouse.move(box["x"] + 100, box["y"] + 80)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 200, box["y"] + 80)
    tab.mouse.up()
    shown = tab.evaluate("[shownTiles.memory.from, shownTiles.memory.to]")
    assert 0 < shown[0] < shown[1] < 48
    chart.focus()
    tab.keyboard.press("+")
    assert tab.evaluate("shownTiles.memory.to - shownTiles.memory.from") < shown[1] - shown[0]
    tab.click(".strip .whole >> nth=0")
    assert tab.evaluate("[shownTiles.memory.from, shownTiles.memory.to]") == [0, 48]


def test_clicks_link_steps_kernels_and_source_lines(tab: Any) -> None:
    tab.click("tr[data-step]:has-text('reduce') >> nth=0")
    step = tab.get_attribute("tr.chosen", "data-step")
    assert "#tile.mapping<" in tab.inner_text("#right .code")
    assert tab.inner_text("#right h2") == "reduce"
    tab.click("[data-tab=way]")
    kernel = tab.wait_for_selector("#right [data-call] >> nth=0")
    tab.click("#right [data-line] >> nth=0")
    tab.wait_for_selector("[data-view=source][aria-selected=true]")
    assert "Conv" in tab.inner_text(".line.chosen") or "@" in tab.inner_text(".line.chosen")
    tab.click(".line.chosen >> nth=0")
    tab.click("[data-tab=way]")
    tab.click(f"#right [data-ipu='{step}']")
    tab.wait_for_selector(f"tr.chosen[data-step='{step}']")
    assert f"step {step}" in tab.inner_text(".strip .told >> nth=1")
    assert kernel


def test_the_memory_peak_and_its_tensors_are_shown(tab: Any) -> None:
    tab.click("text=to the peak")
    heading = tab.inner_text(".strip + div h3")
    assert ", the peak: " in heading
    peak = tab.evaluate("peakOf(known.tiles.liveness.total)")
    assert f"at step {peak}" in heading
    cells = tab.query_selector_all(".strip + div tbody tr td:nth-child(3)")
    unit = {"B": 1, "KiB": 1024, "MiB": 1 << 20}
    words = [cell.inner_text().split() for cell in cells]
    sizes = [float(number.replace(",", "")) * unit[name] for number, name in words]
    total = tab.evaluate(f"known.tiles.liveness.total[{peak}]")
    assert sum(sizes) == pytest.approx(total, rel=0.01)


def test_charts_follow_the_theme(tab: Any) -> None:
    pictures = []
    for _ in range(3):
        pictures.append(tab.evaluate("shownTiles.program.canvas.toDataURL()"))
        tab.click("#theme")
    light, dark, again = pictures
    assert light == again != dark


@pytest.mark.parametrize("level", ["onnx", "graphcore", "structured"])
def test_graphs_are_coloured_by_ipu_cycles(tab: Any, level: str) -> None:
    tab.click(f"[data-view={level}]")
    before = tab.evaluate("state.graph.canvas.toDataURL()")
    tab.select_option("#tools select", "ipu")
    changed = "(before) => state.graph.canvas.toDataURL() !== before"
    tab.wait_for_function(changed, arg=before)
    spent = tab.evaluate(f"known.graphs.{level}.map((node) => amount('{level}', node.id, 'ipu'))")
    total = tab.evaluate("known.tiles.cycles.total")
    assert 0 < max(spent) < total <= sum(spent), "a step may come from several nodes"
    assert tab.inner_text("#legend .legend").startswith("0 cycles")
    tab.select_option("#tools select", "operator")
    assert "cycles" not in tab.inner_text("#legend")


def test_a_narrow_page_keeps_charts_and_search_opens_the_list(tab: Any) -> None:
    tab.set_viewport_size({"width": 1000, "height": 700})
    chart = tab.query_selector_all(".strip canvas")[0]
    assert chart.bounding_box()["width"] > 500
    assert not tab.is_visible("#left")
    tab.keyboard.press("/")
    tab.wait_for_selector("[data-view=onnx][aria-selected=true]")
    tab.keyboard.type("conv")
    assert tab.inner_text("#tree button >> nth=0").startswith("Conv")


def test_an_overflowing_program_shows_an_alert(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of(str(DIGITS), "--dim", "N=512", "--device", "ipu1:1:4"))
    with opened(browser, path.as_uri()) as tab:
        tab.click("[data-view=ipu]")
        words = tab.inner_text("[role=alert]")
        assert words.startswith("Out of memory: tile ") and "too few" in words
        assert "4 of 4 tiles overflow" in words and "try: a smaller batch" in words
        assert "where it is too much" in tab.inner_text(".legend >> nth=0")
        tab.keyboard.press("Tab")


def test_a_missing_model_shows_its_reason(browser: Any, tmp_path: Path) -> None:
    net, path = tmp_path / "net.pgraph", tmp_path / "page.html"
    net.write_text("graph g(x: f32[3]) -> (y) {\n  y = Cast(NonZero(Relu(x)), to=f32)\n}\n")
    popgraph.view(net, device="ipu").save(path)
    with opened(browser, path.as_uri()) as tab:
        tab.click("[data-view=ipu]")
        assert "the output size of NonZero depends on data" in tab.inner_text("[role=alert]")


def test_steps_in_loops_and_branches_are_shown(browser: Any, tmp_path: Path) -> None:
    net, path = tmp_path / "turning.pgraph", tmp_path / "page.html"
    net.write_text(TURNING)
    popgraph.view(net, device="ipu:1:16").save(path)
    with opened(browser, path.as_uri()) as tab:
        tab.click("[data-view=ipu]")
        tab.click("tr[data-step]:has-text('h/turn')")
        assert "within call_loop" in tab.inner_text("#right .head")
        assert "times in the program" in tab.inner_text("#right")
        tab.click("#right td .link")
        assert tab.inner_text("#right h2") == "call_loop"
        assert "Steps in it" in tab.inner_text("#right")
