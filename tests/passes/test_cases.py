"""Tests every pass on its cases: text and meaning are as the claim of the file says."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from popgraph.dialects.check import check_ir
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.order import check_promises
from popgraph.passes.pipeline import check_needs
from popgraph.testing import assert_same_meaning
from tests.passes.case_text import COLUMNS, WITH_CASES, parse, pipeline, show

CASES = Path(__file__).parent / "cases"
SEPARATOR = "// -----\n"


@dataclass(frozen=True)
class Case:
    """A file: a claim in comments, the input, and the expected output of the pass."""

    path: Path

    @property
    def parts(self) -> tuple[str, str]:
        before, _, after = self.path.read_text().partition(SEPARATOR)
        return before, after

    @property
    def claims_no_change(self) -> bool:
        """Whether the first line says that the pass leaves the input unchanged (`stays`)."""
        return bool(re.search(r"\bstays?\b", self.path.read_text().splitlines()[0]))

    def bless(self, before: str, after: str) -> None:
        """Writes the output, and the input, too, if it has lines that are too long."""
        source = self.parts[0]
        if too_long(source):
            claim = "".join(itertools.takewhile(is_comment, source.splitlines(keepends=True)))
            source = f"{claim}{before}\n"
        self.path.write_text(f"{source}{SEPARATOR}{after}\n")


def is_comment(line: str) -> bool:
    return line.startswith("//")


def too_long(text: str) -> list[int]:
    """Numbers of the lines longer than COLUMNS."""
    return [place for place, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS]


FILES = sorted(CASES.rglob("*.mlir"))
every_case = pytest.mark.parametrize(
    "case",
    [Case(path) for path in FILES],
    ids=lambda case: f"{case.path.parent.name}/{case.path.stem}",
)


@pytest.mark.budget
@every_case
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    source, expected = case.parts
    assert source.startswith("// "), "a case begins with its claim"
    compilation = Compilation()
    module = parse(compilation, source)
    check_ir(module)
    before = module.clone()
    for step in pipeline(source, case.path.parent.name).passes:
        assert isinstance(step, Pass)
        check_needs(step, module)
        given = module.clone()
        step.run(compilation, module)
        check_promises(step, given, module)
    check_ir(module)
    if WITH_CASES[case.path.parent.name].KEEPS_MEANING:
        assert_same_meaning(before, module, compilation.weights, tolerance=1e-6)
    text = show(module, source)
    assert text != show(before, source) or case.claims_no_change, (
        "the pass changes nothing: mend the input, or say in the first line that it stays"
    )
    assert parse(compilation, text).is_structurally_equivalent(module)
    if request.config.getoption("--bless"):
        case.bless(show(before, source), text)
        return
    assert expected, "no expected IR yet: look at it, then run pytest --bless"
    assert text.strip() == expected.strip()


@every_case
def test_no_line_of_a_case_is_too_long(case: Case) -> None:
    assert not too_long(case.path.read_text()), (
        f"more than {COLUMNS} columns: use aliases (#map = affine_map<...>) and seeded literals"
        " (#pg.data<seed 1 : tensor<4xf32>>), or let pytest --bless do the former"
    )


def test_every_pass_has_cases() -> None:
    without = [name for name in WITH_CASES if not list((CASES / name).glob("*.mlir"))]
    assert not without
