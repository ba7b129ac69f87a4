"""Tests that code blocks in the docs run, and that generated pages are current."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from typer.testing import CliRunner

import popgraph
from popgraph.builder.pgraph.check.annotations import NODE_NOTES
from popgraph.builder.pgraph.check.loss_table import LOSS_NAMES
from popgraph.builder.pgraph.lower.initializers import INITIALIZERS
from popgraph.builder.pgraph.lower.schedules import SCHEDULE_NAMES, SCHEDULES
from popgraph.builder.pgraph.syntax.parser import GRAMMAR
from popgraph.cli import app
from popgraph.conformance.outcome import Computed, Status
from popgraph.passes import optimizer_spec
from popgraph.passes.onnx.without_gradient import Flow, flows
from popgraph.passes.optimizer_spec import Scalar
from popgraph.passes.pipeline import PIPELINE
from popgraph.training.metrics import METRIC_NAMES
from popgraph.training.update_rule import OPTIMIZER_NAMES
from tests import names_page, walkthrough
from tests.api_page import documented, own_names

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|pgraph|console|text|js)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """(page, language, text) of every code block that is executable."""
    return [
        (page.relative_to(ROOT).as_posix(), language, text)
        for page in PAGES
        for language, text in BLOCK.findall(page.read_text())
    ]


def test_there_are_blocks_to_run() -> None:
    assert any(page == "README.md" for page, _, _ in blocks())


@pytest.mark.budget(30)
@pytest.mark.parametrize("page", sorted({page for page, _, _ in blocks()}))
def test_blocks_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    """
    Runs the blocks of a page in order, in one process.

    Python blocks share their names. `.pgraph` and JavaScript blocks are saved under the name in
    their first comment; Node runs the latter. Commands of console blocks run in a shell and must
    succeed. A `.pgraph` block with errors is followed by the output of `popgraph check`.
    """
    needed = {"torch": "import torch", "casadi": "import casadi", "ziglang": "--package npm"}
    for package, sign in needed.items():
        if any(other == page and sign in text for other, _, text in blocks()):
            pytest.importorskip(package, reason="the page needs it")
    if (page, "js") in {block[:2] for block in blocks()} and shutil.which("node") is None:
        pytest.skip("node is not installed")
    (tmp_path / "page.py").write_text(program_of(page))
    run([sys.executable, "page.py"], tmp_path)


def program_of(page: str) -> str:
    """A program that runs all blocks of a page; `_steps` is the only name that it adds."""
    of_page = [(language, text) for other, language, text in blocks() if other == page]
    steps = ["import tests.page_steps as _steps"]
    for (language, text), following in zip(of_page, [*of_page[1:], ("", "")], strict=True):
        match language:
            case "python":
                steps.append(text)
            case "pgraph":
                shown = following[1].rstrip() if following[0] == "text" else ""
                steps.append(f"_steps.save({text!r}, {shown!r})")
            case "js":
                steps.append(f"_steps.run_script({text!r})")
            case "console":
                steps.append(f"_steps.run_commands({text!r})")
    return "\n".join(steps)


def rows(functions: Mapping[str, Callable[..., object]]) -> list[str]:
    """A table row for each function: its parameters and the start of its docstring."""
    found = []
    for name, function in functions.items():
        parameters = list(inspect.signature(function).parameters.values())[1:]
        shown = ", ".join(
            one.name if one.default is one.empty else f"{one.name}={one.default}"
            for one in parameters
        )
        about = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        found.append(f"| `{name}{f'({shown})' if shown else ''}` | {about} |")
    return found


def test_the_language_page_lists_every_function_and_keyword() -> None:
    page = (ROOT / "docs/language.md").read_text()
    for row in rows({**INITIALIZERS, **SCHEDULES}):
        assert row in page
    for name, kind in optimizer_spec.KINDS.items():
        defaults = [one.name for one in fields(kind) if isinstance(one.default, Scalar)]
        assert all(f"`{one}`" in page for one in defaults), name
    for word in re.findall(r'"([a-z]+)"', GRAMMAR.read_text()):
        assert re.search(rf"\b{word}\b", page), word
    for word in NODE_NOTES:
        assert f"`@{word}" in page
    for path in (ROOT / "examples").glob("*.pgraph"):
        assert f"`{path.name}`" in page


def test_the_walkthrough_shows_current_ir() -> None:
    """`python -m tests.walkthrough` updates the page."""
    text = walkthrough.PAGE.read_text()
    assert walkthrough.page(text) == text
    shown = list(walkthrough.SHOWN.finditer(text))
    assert all(found[6].strip() for found in shown), "a step that changes nothing shows nothing"
    steps = {found[4] for found in shown}
    at_loops = {step.pass_class.name for step in PIPELINE if step.level == "loops" and not step.to}
    assert at_loops <= steps


def test_the_page_of_training_has_all_names() -> None:
    """`python -m tests.names_page` updates the page."""
    assert names_page.PAGE.read_text() == names_page.page()
    shown = CliRunner().invoke(app, ["train", "--help"]).output
    for names in (LOSS_NAMES, OPTIMIZER_NAMES, METRIC_NAMES, SCHEDULE_NAMES):
        for name in names.names:
            assert re.search(rf"\b{name}\b", shown), name


PATH = re.compile(r"`((?:[\w.]+/)*\w+\.(?:py|h)|(?:\w+/){2,})`")


INTERNALS = sorted(f"docs/internals/{one.name}" for one in (ROOT / "docs/internals").glob("*.md"))


@pytest.mark.parametrize(
    "page", ["README.md", "docs/architecture.md", "docs/glossary.md", *INTERNALS]
)
def test_files_named_by_a_page_exist(page: str) -> None:
    """Files are named by their path in the repository, or its end."""
    there = [f"/{one.relative_to(ROOT).as_posix()}" for one in (ROOT / "popgraph").rglob("*")]
    there += [f"/{one.relative_to(ROOT).as_posix()}" for one in (ROOT / "tests").glob("*.py")]
    named = [name.rstrip("/") for name in PATH.findall((ROOT / page).read_text())]
    assert page == "README.md" or named
    for name in named:
        assert any(one.endswith(f"/{name}") for one in there), f"{page} names {name}"


def run(command: list[str], folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


@pytest.mark.budget
@pytest.mark.parametrize("page", ["ops", "passes", "popart", "tile", "cli", "api"])
def test_generated_pages_are_current(page: str) -> None:
    """Runs the commands of `make pages` with only the packages of `.[docs]`."""
    rule = rf"python -m (\S+) ?(.*) > docs/{page}\.md"
    ((module, arguments),) = re.findall(rule, (ROOT / "Makefile").read_text())
    absent = ["torch", "onnxruntime", "pytest", "hypothesis"]
    program = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({absent}))  # importing one raises ImportError
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / f"docs/{page}.md").read_text() == done.stdout, "run `make pages`"


def test_the_page_of_the_environment_has_every_variable() -> None:
    """Files of `c/print` name macros of C."""
    files = (ROOT / "popgraph").rglob("*.py")
    texts = [file.read_text() for file in files if file.parent.name != "print"]
    read = {name for text in texts for name in re.findall(r'"(POPGRAPH_[A-Z_]+)"', text)}
    page = (ROOT / "docs/environment.md").read_text()
    assert {*re.findall(r"^\| `(POPGRAPH_[A-Z_]+)", page, re.MULTILINE)} == read


def test_every_public_name_has_a_docstring() -> None:
    silent = [name for name in own_names() if not documented(getattr(popgraph, name))]
    assert not silent and len(own_names()) > 15


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    """The build checks links and anchors, and includes notebooks and files of the repository."""
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
    build(config)  # Strict: a warning is an error.
    index = (tmp_path / "index.html").read_text()
    assert 'href="tutorial.html"' in index and 'src="images/view-training.png"' in index
    assert "<svg" in (tmp_path / "notebooks/training.html").read_text()
    assert (tmp_path / "files/popgraph/builder/pgraph/syntax/pgraph.lark").exists()
    assert (tmp_path / "search/search_index.json").exists()


def test_the_page_of_compatibility_has_the_versions_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs/compatibility.md").read_text()
    assert f"| packages | {', '.join(f'`{one}`' for one in project['dependencies'])} |" in page
    assert f"`{project['requires-python']}`" in page
    named = [one for one in project["classifiers"] if re.search(r"Python :: 3\.\d", one)]
    assert named and all(re.search(rf"\b{one.split()[-1]}\b", page) for one in named)
    (zig,) = project["optional-dependencies"]["zig"]
    assert f"`{zig}`" in page


def pages_of(part: object) -> set[str]:
    """The pages in a part of the site's navigation."""
    if isinstance(part, str):
        return {part}
    inside = part.values() if isinstance(part, Mapping) else part
    return {page for one in inside for page in pages_of(one)}  # type: ignore[attr-defined]


def test_the_readme_links_every_page_by_section() -> None:
    sections = {
        name: pages_of(part)
        for entry in load_config(str(ROOT / "mkdocs.yml")).nav
        if isinstance(entry, Mapping)
        for name, part in entry.items()
    }
    assert list(sections) == ["Tutorial", "How-to", "Concepts", "Reference", "Internals"]
    linked: dict[str, set[str]] = {}
    table = (ROOT / "README.md").read_text().partition("## Where to go")[2]
    for name, row in re.findall(r"^\| (?:\*\*(.+?)\*\* )?\|(.*)$", table, re.MULTILINE):
        section = linked.setdefault(name or list(linked)[-1], set())
        section |= {link.removeprefix("docs/") for link in re.findall(r"\]\((.+?)\)", row)}
    linked = {
        name: {link.replace(".ipynb", ".md").replace("decisions", "DECISIONS") for link in links}
        for name, links in linked.items()
    }
    assert linked == sections


def test_the_diagram_of_the_readme_fits_a_phone() -> None:
    """A screen of 420 pixels shows 47 characters of a code block."""
    lines = re.findall(r"^    (\S.*|  .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    shown = [line for line in lines if "│" in line or line.startswith("make ")]
    assert len(shown) > 5
    assert max(map(len, shown)) <= 47


def test_the_readme_has_the_figures_of_conformance() -> None:
    """README and docs/conformance.md have the figures that `make operators` wrote."""
    record = json.loads((ROOT / "docs/operators.json").read_text())
    found = record["conformance"]["all"]
    computed = [found.get(by, 0) for by in Computed]
    ends = [found.get(status, 0) for status in Status]
    assert sum(computed) == found[Status.PASSED]
    shown_numbers = numbers_in("What is computed", "backend tests")
    wanted = [sum(ends), ends[0], *computed, found[Status.SKIPPED]]
    assert shown_numbers == wanted and not found.get(Status.WRONG)
    assert sum(ends) == found[Status.PASSED] + found[Status.SKIPPED], "say what failed, too"
    page = (ROOT / "docs/conformance.md").read_text()
    row = [str(sum(ends)), str(ends[0]), *map(str, [*computed, *ends[1:]])]
    assert f"| all | {' | '.join(row)} |" in page
    failing = f"{ends[0]:,} tests that pass and {found[Status.SKIPPED]} that fail"
    assert failing in page


def test_the_readme_counts_the_gradients_of_operators() -> None:
    record = json.loads((ROOT / "docs/operators.json").read_text())["operators"]
    found = flows({name: slopes for name, (_, slopes) in record.items() if slopes})
    count = Counter(flow for flow, _ in found.values())
    some = count[Flow.ALL] + count[Flow.SOME]
    wanted = [len(found), some, count[Flow.ZERO], count[Flow.NONE]]
    assert numbers_in("What is computed", "gradient") == wanted


def numbers_in(section: str, word: str) -> list[int]:
    """The integers in the paragraph of a README section with this word."""
    part = (ROOT / "README.md").read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    (paragraph,) = (one for one in part.strip().split("\n\n") if word in one)
    return [int(one.replace(",", "")) for one in re.findall(r"\b\d[\d,]*\b", paragraph)]


def test_the_readme_has_the_figures_of_the_performance_page() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    for kind, part in (("inference", "inference"), ("a step of training", "training")):
        table = page.partition(f"<!-- {part} with avx512 -->")[2].partition("\n### ")[2]
        table = table.partition("\n### ")[0].partition("<!--")[0]
        known = dict(re.findall(r"^\| (\S+) \|.*?\*\*([\d.]+)\*\*", table, re.MULTILINE))
        readme = (ROOT / "README.md").read_text()
        rows = rf"\| {kind} \|(.*)\|\n.*\n\| times as fast \|(.*)\|"
        ((names, figures),) = re.findall(rows, readme)
        quoted = dict(zip(names.split(" | "), figures.split(" | "), strict=True))
        assert len(quoted) > 3
        for name, figure in quoted.items():
            assert known[name.strip()] == figure.strip(), name
