"""Does every pass do to every case what its file claims, in text and in meaning?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.parser import Parser
from xdsl.passes import PassPipeline

from popgraph.dialects.check import check_ir
from popgraph.passes.base import Compilation
from popgraph.passes.pipeline import PASSES, factories
from popgraph.testing import assert_same_meaning

CASES = Path(__file__).parent / "cases"
SEPARATOR = "// -----\n"


@dataclass(frozen=True)
class Case:
    """One file: a claim in comments, the input, and what the pass makes of it."""

    path: Path

    @property
    def spec(self) -> str:
        """The pass with its options: a line `// -p name{option=1}`, else the folder's name."""
        found = re.search(r"^// -p (.*)$", self.path.read_text(), re.MULTILINE)
        return found[1] if found else self.path.parent.name

    @property
    def parts(self) -> tuple[str, str]:
        before, _, after = self.path.read_text().partition(SEPARATOR)
        return before, after

    def bless(self, text: str) -> None:
        self.path.write_text(f"{self.parts[0]}{SEPARATOR}{text}\n")


FILES = sorted(CASES.rglob("*.mlir"))


@pytest.mark.parametrize(
    "case",
    [Case(path) for path in FILES],
    ids=lambda case: f"{case.path.parent.name}/{case.path.stem}",
)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    source, expected = case.parts
    assert source.startswith("// "), "a case begins with its claim"
    compilation = Compilation()
    module = Parser(compilation, source).parse_module()
    check_ir(module)
    before = module.clone()
    PassPipeline.parse_spec(factories(), case.spec).apply(compilation, module)
    check_ir(module)
    if PASSES[case.path.parent.name].KEEPS_MEANING:
        assert_same_meaning(before, module, compilation.weights, tolerance=1e-6)
    if request.config.getoption("--bless"):
        case.bless(str(module))
        return
    assert expected, "no expected IR yet: look at it, then run pytest --bless"
    assert str(module).strip() == expected.strip()


def test_every_pass_has_cases() -> None:
    without = [name for name in PASSES if not list((CASES / name).glob("*.mlir"))]
    assert not without
