"""Tests that the workflows call targets, modules and files that exist, and publish safely."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.wheels import promised

yaml = pytest.importorskip("yaml", reason="mkdocs, of the extra `docs`, brings it")
ROOT = Path(__file__).parent.parent
WORKFLOWS = {path.name: path.read_text("utf-8") for path in (ROOT / ".github/workflows").iterdir()}
PINNED = re.compile(r"[\w-]+/[\w.-]+@(v\d+|release/v\d+)")
PUBLISHER = "pypa/gh-action-pypi-publish"


def jobs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["jobs"]
    return found


def problems(text: str) -> Iterator[str]:
    """The defects of a workflow."""
    workflow = yaml.safe_load(text)
    if workflow.get("permissions") != {"contents": "read"}:
        yield "the workflow may do more than read"
    for name, job in workflow["jobs"].items():
        needed = job.get("needs", [])
        for other in [needed] if isinstance(needed, str) else needed:
            if other not in workflow["jobs"]:
                yield f"{name}: there is no job {other!r}"
        if "timeout-minutes" not in job:
            yield f"{name}: no timeout"
        versions = job.get("strategy", {}).get("matrix", {}).get("python")
        if versions not in (None, promised()):
            yield f"{name}: Python {versions}, but the metadata promise {promised()}"
        for step in job["steps"]:
            if not PINNED.fullmatch(step.get("uses", "a/b@v1")):
                yield f"{name}: {step['uses']} is not pinned to a major version"
            yield from (f"{name}: {one}" for one in missing(step.get("run", "")))
        if publishes(job):
            yield from (f"{name}: {one}" for one in unsafe(job))
        elif "id-token" in job.get("permissions", {}):
            yield f"{name}: only the job that publishes gets a token"


def publishes(job: dict[str, Any]) -> bool:
    return any(step.get("uses", "").startswith(PUBLISHER) for step in job["steps"])


def unsafe(job: dict[str, Any]) -> Iterator[str]:
    """The defects of a job that publishes: it runs no code of the repository."""
    if job.get("environment") != "pypi" or job.get("permissions") != {"id-token": "write"}:
        yield "publishing needs the environment `pypi` and id-token alone"
    for step in job["steps"]:
        if "run" in step or "checkout" in step["uses"] or "password" in step.get("with", {}):
            yield "publishing downloads files and uploads them, without code and without a password"


def missing(commands: str) -> Iterator[str]:
    """The targets, modules and files in these commands that do not exist."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for line in commands.splitlines():
        for target in re.findall(r"^make (\S+)", line):
            if target not in targets:
                yield f"make has no target {target!r}"
        for module in re.findall(r"-m (tests\.\w+)", line):
            if not (ROOT / f"{module.replace('.', '/')}.py").exists():
                yield f"there is no module {module}"
        for name in re.findall(r"\btests/[\w/]+\.py", line):
            if not (ROOT / name).exists():
                yield f"there is no file {name}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_are_sound(name: str) -> None:
    assert not list(problems(WORKFLOWS[name]))


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("tests.yml", "make check", "make chekc", "no target 'chekc'"),
        ("tests.yml", "tests/test_pipeline.py", "tests/test_nothing.py", "no file"),
        ("tests.yml", "-m tests.wheels", "-m tests.weels", "no module tests.weels"),
        ("tests.yml", "actions/checkout@v5", "actions/checkout@main", "not pinned"),
        ("tests.yml", '"3.12", "3.13"', '"3.12"', "the metadata promise"),
        ("tests.yml", "contents: read", "contents: write", "more than read"),
        ("release.yml", "needs: build", "needs: bild", "no job 'bild'"),
        ("release.yml", "environment: pypi", "environment: other", "needs the environment"),
        ("release.yml", "- uses: pypa", "- run: make test\n      - uses: pypa", "without code"),
    ],
)
def test_defects_are_found(name: str, before: str, after: str, message: str) -> None:
    assert before in WORKFLOWS[name]
    found = list(problems(WORKFLOWS[name].replace(before, after)))
    assert any(message in one for one in found), found


def test_every_system_runs_the_tests_and_the_commands_of_the_readme() -> None:
    found = jobs(WORKFLOWS["tests.yml"])
    systems = {job["runs-on"] for job in found.values()}
    assert systems > {"ubuntu-latest", "macos-latest", "windows-latest"}
    for text in WORKFLOWS.values():
        install = jobs(text)["install"]["strategy"]["matrix"]
        assert install["system"] == ["ubuntu-latest", "macos-latest", "windows-latest"]


def test_a_release_publishes_the_files_that_were_checked() -> None:
    """One job builds and uploads the files; the others download them."""
    found = jobs(WORKFLOWS["release.yml"])
    assert [name for name, job in found.items() if publishes(job)] == ["publish"]
    assert set(found["publish"]["needs"]) == {"build", "install"}
    steps = [step for job in found.values() for step in job["steps"]]
    moved = [step["with"]["name"] for step in steps if "-artifact@" in step.get("uses", "")]
    assert moved == ["distributions"] * 3
    assert sum("make release" in step.get("run", "") for step in steps) == 1
