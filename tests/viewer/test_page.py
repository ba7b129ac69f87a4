"""Tests the page: its contents, its server, and its behaviour in a browser."""

from __future__ import annotations

import csv
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.viewer.page import HERE, IPU, SCRIPTS, page
from popgraph.viewer.server import Server
from popgraph.viewer.training_page import NAME, TrainingPage
from tests.viewer.exported import exported
from tests.viewer.tabs import opened

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits_cnn.pgraph"
DESK, TABLET, PHONE = (
    {"width": width, "height": height} for width, height in ((1400, 900), (900, 650), (420, 800))
)
OUTSIDE = """(() => {
    const { boxes, paths, scale, x, y, width, height } = state.graph;
    const ends = [...boxes.map((box) => [box.x, box.y, box.x + box.w, box.y + box.h]),
        ...paths.map((path) => path.bounds)];
    return ends.filter(([left, top, right, bottom]) => x + left * scale < 0 || y + top * scale < 0
        || x + right * scale > width || y + bottom * scale > height).length;
})()"""
"""Number of boxes and paths that are drawn outside of the canvas."""
SHOWN = "state.graph.boxes.filter((box) => !box.group).map((box) => box.item.node.name)"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "digits.html"
    result = CliRunner().invoke(app, ["view", str(DIGITS), "--dim", "N=1", "--save", str(path)])
    assert result.exit_code == 0, result.output
    return path


class References(HTMLParser):
    """The addresses that a page would fetch, and the parts of its document."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.parts: dict[str, Any] = {}
        self._part = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        self._part = (known.get("id") or "") if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._part:
            self.parts[self._part.removeprefix("part-")] = json.loads(data)
            self._part = ""


def test_a_saved_page_holds_all_parts_and_fetches_nothing(saved: Path) -> None:
    text = saved.read_text()
    found = References()
    found.feed(text)
    assert not found.fetched
    assert set(found.parts) == {"model", "lowered", "passes", "weights"}
    assert found.parts["lowered"]["kernels"] and str(EXAMPLES) not in text
    written = "".join(file.read_text() for file in SCRIPTS)
    assert not re.search(r"https?:|@import|\binnerHTML\b|\beval\b", written)
    assert not re.search(r"https?:|@import|url\(", (HERE / "style.css").read_text())


def test_every_script_is_in_the_page() -> None:
    assert {*HERE.glob("*.js"), *IPU.glob("*.js")} == set(SCRIPTS)


def test_names_of_a_model_cannot_end_the_data() -> None:
    text = page({"model": {"name": "</script><script>alert(1)</script>{{script}}"}})
    found = References()
    found.feed(text)
    assert found.parts["model"]["name"].startswith("</script>")
    assert "<script>alert" not in text


def test_sizes_of_symbolic_dimensions_can_be_set() -> None:
    shown = popgraph.view(DIGITS, sizes={"N": 3})
    assert "f32[3, 8, 4, 4]" in json.dumps(shown.document.part("model"))
    assert shown.document.part("lowered")["kernels"]
    with pytest.raises(popgraph.PopgraphError, match="no symbolic dimension 'M'"):
        popgraph.view(DIGITS, sizes={"M": 3})


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    shown = popgraph.view(EXAMPLES / "power_iteration.pgraph")._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html&gt;')


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(popgraph.view(EXAMPLES / "power_iteration.pgraph").document)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    yield made
    made.close()
    thread.join(10)


def answer(address: str, host: str = "") -> tuple[int, str]:
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_server_is_local_and_requires_the_token(server: Server) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", server.address)
    status, text = answer(server.address)
    assert status == 200 and "<!doctype html>" in text and 'id="part-' not in text
    status, text = answer(f"{server.address}part/model")
    assert status == 200 and json.loads(text)["graph"]
    bare = server.address.removesuffix(f"{server.token}/")
    for wrong in (bare, f"{bare}part/model", f"{bare}{'x' * 32}/", f"{bare}{server.token}"):
        assert answer(wrong)[0] == 403, wrong
    assert answer(server.address, host="example.org")[0] == 403
    assert answer(f"{server.address}part/secrets")[0] == 404
    assert answer(f"{server.address}../../etc/passwd")[0] == 404


@pytest.fixture
def shown(browser: Any, saved: Path) -> Iterator[Any]:
    with opened(browser, saved.as_uri()) as tab:
        yield tab


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainingPage:
    """The page of a finished training."""
    page = TrainingPage(tmp_path_factory.mktemp("reports") / "report.html")
    x = np.random.default_rng(0).normal(size=(40, 1, 8, 8)).astype(np.float32)
    popgraph.train(DIGITS, (x, np.arange(40) % 10), epochs=3, batch=10, callbacks=[page])
    return page


def test_a_report_begins_with_the_training(browser: Any, trained: TrainingPage) -> None:
    with opened(browser, Path(str(trained.path)).as_uri()) as tab:
        assert tab.get_attribute("#views [aria-selected=true]", "data-view") == "training"
        assert len(tab.query_selector_all(".charts svg")) == 1
        assert len(tab.query_selector_all("td svg")) == 2 * 6
        assert tab.inner_text("#center tr:last-child td:first-child >> nth=-1") == "3"
        tab.click("[data-view=graphcore]")
        tab.wait_for_selector("canvas")


def test_a_running_training_is_polled(browser: Any, trained: TrainingPage) -> None:
    document = popgraph.view(DIGITS, sizes={"N": 1}).document
    now = {"runs": True, "done": 1}
    asked = count()
    ended: Any = SimpleNamespace(
        history=popgraph.History(), stopped="it was enough", planned=3, facts={}
    )

    def part() -> dict[str, Any]:
        next(asked)
        return trained.part(ended) | now

    document.live[NAME] = part
    server = Server(document)
    threading.Thread(target=server.run, daemon=True).start()
    with opened(browser, server.address) as tab:
        tab.wait_for_selector(".figures div:has-text('1 of 3')")
        now |= {"runs": False, "done": 3}
        tab.wait_for_selector("text=It has ended: it was enough.")
        assert tab.inner_text(".figures b") == "3"
        times = next(asked)
        tab.wait_for_timeout(1500)
        assert next(asked) == times + 1, "a training that has ended is no longer polled"
    server.close()


def test_the_page_shows_every_view(shown: Any) -> None:
    views = [tab.get_attribute("data-view") for tab in shown.query_selector_all("#views button")]
    assert len(views) == 7
    for view in views:
        shown.click(f"[data-view={view}]")
        shown.wait_for_selector(f"[data-view={view}][aria-selected=true]")
        assert shown.query_selector("#center > *")
        assert "[object" not in shown.inner_text("body")
        assert view != "memory" or shown.inner_text("#center .figures b")
    shown.click("#theme")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page, and files with its times in the same folder."""
    path = tmp_path_factory.mktemp("measured") / "measured.html"
    files = [("--save", "html"), ("--json", "json"), ("--csv", "csv")]
    arguments = [one for option, end in files for one in (option, str(path.with_suffix(f".{end}")))]
    asked = ["view", str(DIGITS), "--dim", "N=1", "--profile", *arguments]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0 and result.output.count("is written") == 3, result.output
    return path


def test_times_are_the_same_in_all_forms(measured: Path) -> None:
    found = References()
    found.feed(measured.read_text())
    root = json.loads(measured.with_suffix(".json").read_text())
    assert root == found.parts["lowered"]["flame"]
    with measured.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))

    def boxes_below(box: dict[str, Any], above: str) -> Iterator[tuple[str, str, float, int]]:
        yield above, box["name"], box["microseconds"], box["calls"]
        for inner in box["below"]:
            yield from boxes_below(inner, box["name"])

    names = {row["number"]: row["name"] for row in rows} | {"": ""}
    assert list(boxes_below(root, "")) == [
        (names[row["in"]], row["name"], float(row["microseconds"]), int(row["calls"]))
        for row in rows
    ]


@pytest.mark.parametrize("option", ["--json", "--csv"])
def test_times_require_profile(option: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["view", str(DIGITS), option, str(tmp_path / "times")])
    assert result.exit_code == 2 and "times are measured with --profile" in result.output


def test_the_flame_graph_shows_times_and_links(browser: Any, measured: Path) -> None:
    with opened(browser, measured.as_uri()) as tab:
        tab.click("[data-view=time]")
        assert "DIGITS" in tab.inner_text(".told").upper() and "100.0 %" in tab.inner_text(".told")
        whole = tab.wait_for_selector(".flame .model").bounding_box()["width"]
        box = tab.wait_for_selector(".flame .onnx:has-text('Conv + Relu')")
        part = box.bounding_box()["width"] / whole
        box.hover()
        words = tab.inner_text(".told")
        assert "ONNX node" in words and "1 call" in words
        share = float(re.search(r"([\d.]+) %", words)[1])  # type: ignore[index]
        assert share / 100 == pytest.approx(part, abs=0.02)
        box.click()
        assert tab.inner_text("#right h2") == "Conv"
        assert tab.query_selector(".flame .kernel.chosen")
        wide = tab.wait_for_selector(".flame .onnx.chosen").bounding_box()["width"]
        assert wide == pytest.approx(whole, abs=2)
        tab.click("#go")
        tab.wait_for_selector("[data-view=onnx][aria-selected=true]")
        tab.click("[data-view=time]")
        tab.click(".flame .kernel >> nth=-1")
        title = tab.inner_text("#right h2")
        tab.click("#go")
        assert title in tab.inner_text("tr.chosen")


def test_host_steps_are_shown(browser: Any, tmp_path: Path) -> None:
    path, saved = tmp_path / "net.pgraph", tmp_path / "net.html"
    path.write_text(
        "graph g(x: f32[3]) -> (y) {\n  i = Cast(Relu(x), to=8)\n  y = Neg(Cast(i, to=f32))\n}\n"
    )
    assert CliRunner().invoke(app, ["view", str(path), "--save", str(saved)]).exit_code == 0
    with opened(browser, saved.as_uri()) as tab:
        for view in ("graphcore", "structured", "memory", "passes", "program"):
            tab.click(f"[data-view={view}]")
            tab.wait_for_selector(f"[data-view={view}][aria-selected=true]")
        titles = [one.inner_text() for one in tab.query_selector_all("#center h3")]
        why = "'i' is string[3]"
        python = [f"step {number}: Python, because {why}" for number in (2, 3)]
        assert titles == ["step 1: compiled", *python, "step 4: compiled"]
        flows = [one.inner_text() for one in tab.query_selector_all(".flow")]
        assert flows[0].startswith("takes x f32[3]; gives i")
        assert "gives y f32[3]" in flows[3]
        tab.click("tr[data-call]:has-text('Cast in Python') >> nth=0")
        assert f"Python computes it: {why}." in tab.inner_text("#right")


def test_inputs_of_a_model_are_not_operations(shown: Any) -> None:
    shown.fill("#search", "input")
    shown.press("#search", "Enter")
    shown.click("[data-tab=way]")
    words = shown.inner_text("#right")
    assert "what a model is given, and what it gives, is no operation" in words
    assert "folded" not in words


def test_measured_calls_are_below_the_roofline(browser: Any, measured: Path) -> None:
    with opened(browser, measured.as_uri()) as tab:
        tab.click("[data-view=program]")
        tab.click(".roofline circle >> nth=0")
        assert tab.inner_text("#right h2") in tab.inner_text("tr.chosen")


def test_search_finds_nodes_and_kernels(shown: Any) -> None:
    shown.keyboard.press("/")
    shown.keyboard.type("maxpool 8, 4, 4")
    found = shown.query_selector_all("#tree button")
    assert [one.inner_text().split() for one in found] == [["MaxPool", "h2"]]
    shown.keyboard.press("Enter")
    assert shown.inner_text("#right h2") == "MaxPool"


def test_clicks_go_from_a_kernel_to_its_line_and_back(shown: Any) -> None:
    shown.click("[data-view=program]")
    row = shown.wait_for_selector("tr[data-call]:has-text('maximumf_288')")
    call = row.get_attribute("data-call")
    row.click()
    assert "void kernel_maximumf_288_f32" in shown.inner_text("#right .code")
    shown.click("[data-tab=way]")
    shown.click("#right [data-line]")
    shown.wait_for_selector(".line.chosen")
    assert "MaxPool(h, kernel_shape" in shown.inner_text(".line.chosen .text")
    shown.click(".line[data-number='14']")
    assert shown.inner_text("#right h2") == "MaxPool"
    shown.click("[data-tab=way]")
    assert shown.query_selector(f"#right [data-call='{call}']")


def test_clicks_go_from_a_kernel_to_the_call_of_a_builder_and_back(
    browser: Any, tmp_path: Path
) -> None:
    builder, path = popgraph.Builder(), tmp_path / "built.html"
    x = builder.addInputTensor("FLOAT", [4, 8])
    builder.addOutputTensor(builder.aiOnnx.tanh([x]))
    popgraph.view(builder).save(path)
    with opened(browser, path.as_uri()) as tab:
        tab.click("[data-view=program]")
        tab.click("tr[data-call]:has-text('tanh')")
        tab.click("[data-tab=way]")
        assert "builder.aiOnnx.tanh([x])" in tab.inner_text("#right .step .code >> nth=0")
        tab.click("#right [data-line]")
        assert "addOutputTensor(builder.aiOnnx.tanh" in tab.inner_text(".line.chosen .text")
        tab.click(".line.chosen")
        assert tab.inner_text("#right h2") == "Tanh"


def test_a_click_on_the_canvas_chooses_a_node_and_groups_open(shown: Any) -> None:
    place = shown.evaluate(
        "(() => { const { box } = state.graph.leaves[1]; const { x, y, scale } = state.graph;"
        " const { left, top } = state.graph.canvas.getBoundingClientRect();"
        " return [left + x + (box.x + box.w / 2) * scale, top + y + (box.y + 9) * scale]; })()"
    )
    shown.mouse.click(*place)
    assert shown.inner_text("#right h2") == "Conv"
    shown.click("text=Close all")
    assert shown.evaluate("state.graph.boxes.filter((box) => box.group && !box.open).length") == 1


def test_boxes_of_a_graph_do_not_overlap(shown: Any) -> None:
    """Boxes of one group do not overlap, and are below the boxes that they read."""
    for level in ("onnx", "graphcore", "structured"):
        shown.click(f"[data-view={level}]")
        faults = shown.evaluate(
            "(() => { let found = 0; const visit = (group) => {"
            " for (const a of group.items) { if (a instanceof Group && a.open) visit(a);"
            "  for (const b of group.items) if (a !== b && a.x < b.x + b.w && b.x < a.x + a.w"
            "   && a.y < b.y + b.h && b.y < a.y + a.h) found += 1; }"
            " for (const { source: a, target: b, back } of group.routes)"
            "  if (!back && !a.port && !b.port && b.y < a.y + a.h) found += 1; };"
            " visit(state.graph.root); return found; })()"
        )
        assert faults == 0, level


@pytest.fixture(scope="module")
def exported_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pages") / "exported.html"
    popgraph.view(exported(layers=12)).save(path)
    return path.as_uri()


@pytest.mark.parametrize("size", [DESK, TABLET, PHONE], ids=["desk", "tablet", "phone"])
def test_fit_shows_all_that_is_drawn(browser: Any, exported_page: str, size: Any) -> None:
    """With any groups open, the graph fits, and no other part of the page covers it."""
    with opened(browser, exported_page) as tab:
        tab.set_viewport_size(size)
        for act in ("Close all", "Unfold weights", "Open all", "Fold weights"):
            tab.click(f"#tools button:has-text('{act}')")
            tab.click("#tools button:has-text('Fit')")
            tab.wait_for_selector("#minimap", state="hidden")
            assert tab.evaluate(OUTSIDE) == 0, act
        tab.set_viewport_size(PHONE if size != PHONE else DESK)
        tab.wait_for_function(f"{OUTSIDE} === 0")
        place = tab.query_selector("#graph").bounding_box()
        assert place["width"] > 400 and place["height"] > 300
        top, bottom = (tab.query_selector(one).bounding_box() for one in ("#tools", "#legend"))
        assert top["y"] + top["height"] <= place["y"]
        assert place["y"] + place["height"] <= bottom["y"]


def test_colours_are_explained_below_the_graph_unless_they_are_closed(shown: Any) -> None:
    before = shown.query_selector("#graph").bounding_box()["height"]
    assert "Conv 2" in shown.inner_text("#legend")
    shown.click("#legend button")
    assert "Conv 2" not in shown.inner_text("#legend")
    shown.wait_for_function(f"state.graph.height >= {before}")


def test_weights_in_other_forms_are_operands_until_they_are_opened(
    browser: Any, exported_page: str
) -> None:
    with opened(browser, exported_page) as tab:
        folded = {"node_shared", "node_turned"}
        whole = set(tab.evaluate(SHOWN))
        assert not folded & whole and "node_product0" in whole
        tab.fill("#search", "product0")
        tab.press("#search", "Enter")
        assert "w → Identity → Transpose" in tab.inner_text("#right")
        assert tab.wait_for_selector(".histogram")
        tab.click("#right td .link:has-text('turned')")
        assert tab.inner_text("#right h2") == "Transpose"
        assert set(tab.evaluate(SHOWN)) == whole | folded
        tab.click("text=Fold weights")
        assert set(tab.evaluate(SHOWN)) == whole
        assert "shared" not in tab.inner_text("#tree")
        tab.keyboard.press("Escape")
        tab.fill("#search", "Identity node_shared")
        tab.press("#search", "Enter")
        assert set(tab.evaluate(SHOWN)) == whole | folded


@pytest.mark.parametrize("size", [DESK, TABLET, PHONE], ids=["desk", "tablet", "phone"])
def test_columns_of_tables_are_wide_enough(browser: Any, measured: Path, size: Any) -> None:
    """A cell whose text is cut off has the whole text as its title."""
    with opened(browser, measured.as_uri()) as tab:
        tab.set_viewport_size(size)
        for view in ("program", "memory"):
            tab.click(f"[data-view={view}]")
            tab.wait_for_selector("#center td.text")
            read = "[cell.getBoundingClientRect().width, cell.title, cell.textContent]"
            # At once: the page may replace the cells meanwhile.
            cells = tab.eval_on_selector_all("#center td.text", f"all => all.map(cell => {read})")
            assert min(width for width, _, _ in cells) >= 115
            assert all(title == text for _, title, text in cells)
            cut = "[...document.querySelectorAll('.columns .number')].filter((cell) => "
            assert tab.evaluate(cut + "cell.scrollWidth > cell.clientWidth).length") == 0


def test_a_phone_shows_the_graph_and_opens_list_and_details(browser: Any, saved: Path) -> None:
    with opened(browser, saved.as_uri()) as tab:
        tab.set_viewport_size(PHONE)
        assert not tab.is_visible("#left") and not tab.is_visible("#right")
        tab.click("#panels >> text=List")
        tab.click("#tree button:has-text('MaxPool')")
        assert tab.inner_text("#right h2") == "MaxPool" and not tab.is_visible("#left")
        tab.wait_for_function("state.graph.sees(state.graph.leaves[state.chosen.id].box)")
        assert tab.query_selector("#graph").bounding_box()["height"] > 200
        tab.click("#panels >> text=Details")
        assert not tab.is_visible("#right")
        tab.click("[data-view=program]")
        tab.click("#panels >> text=List")
        tab.wait_for_selector("#tree")
        assert tab.evaluate("document.body.scrollWidth") <= PHONE["width"]
