"""
Doubles and halves every threshold of `Tuning`, and records the changed benchmark programs.

Each network is lowered once per machine and number of threads. Passes that read a threshold run
again with another value, starting at the first whose result differs. A change is measured on the
final IR, without running it: the ratios of instructions on floats and memory, and of loaded and
stored bytes.

    python benchmarks/thresholds.py --quick              few networks and machines
    python benchmarks/thresholds.py --write              all, with the summary in thresholds.json
    python benchmarks/thresholds.py --docstrings         copies the summary into tuning.py

Results are appended to build/thresholds.jsonl; a case that is recorded there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import hashes
from hashes import Case
from operator_cases import CASES
from xdsl.dialects.builtin import ModuleOp

from popgraph.compiler import load
from popgraph.compiler.lowering import settle_nodes
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter, Work
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.support import tuning
from popgraph.support.errors import PopgraphError
from popgraph.support.garbage import without_collection
from popgraph.support.machine import MACHINES
from popgraph.support.tuning import PerTile, Tuning

HERE = Path(__file__).parent
RECORD = HERE / "thresholds.json"
RESULTS = HERE.parent / "build/thresholds.jsonl"
OPERATORS = {f"operator/{case.title}#{number}": case for number, case in enumerate(CASES)}
"""Models of one operator, for operators and shapes that no network has."""
NETWORKS = (*hashes.NETWORKS, *OPERATORS)
THRESHOLDS = tuple(each.name for each in fields(Tuning))
DEFAULT = Tuning()
DIRECTIONS = ("halved", "doubled")
FROM_ZERO = 256
"""The value that replaces 0, which neither doubling nor halving changes."""
EVIDENCE = "Felt by"
"""The beginning of the sentence in a docstring that comes from the record."""
UNFELT = "Unfelt by the benchmarks:"
"""The beginning of the sentence with the reason of a threshold without effect."""

Change: TypeAlias = dict[str, Any]
"""The first pass whose result differs, and the ratios of instructions and bytes."""
Values: TypeAlias = dict[str, Any]
"""Values of thresholds by name."""
Found: TypeAlias = dict[str, dict[str, Change]]
"""Changes by threshold and direction; others do not change the program."""


def neighbour(value: float | PerTile, direction: str) -> float | PerTile:
    """Half or twice the value of a threshold."""
    if isinstance(value, PerTile):
        two, four = (neighbour(each, direction) for each in (value.two, value.four))
        assert not isinstance(two, PerTile) and not isinstance(four, PerTile)
        return PerTile(two, four)
    if value == 0:
        return FROM_ZERO
    if direction == "doubled":
        return value * 2
    return value // 2 if isinstance(value, int) else value / 2


class Watched(Tuning):
    """The default thresholds; records the names of the fields that are read."""

    @staticmethod
    def into(names: set[str]) -> Watched:
        made = Watched()
        object.__setattr__(made, "names", names)
        return made

    def __getattribute__(self, name: str) -> Any:
        if name in THRESHOLDS:
            object.__getattribute__(self, "__dict__").get("names", set()).add(name)
        return super().__getattribute__(name)


@dataclass
class Lowered:
    """A program with default thresholds, and the modules between the passes that read any."""

    options: Options
    compilation: Compilation
    before: dict[int, ModuleOp]
    """The module before each pass that reads a threshold, and after it."""
    readers: dict[str, list[int]]
    """The numbers of the passes that read each threshold."""
    final: ModuleOp
    work: Work

    @staticmethod
    def of(module: ModuleOp, weights: WeightStore, options: Options) -> Lowered:
        read = set[str]()
        compilation = Compilation(WeightStore(weights))
        settle_nodes(module, compilation, options)
        before, readers = dict[int, ModuleOp](), defaultdict[str, list[int]](list)
        for number, step in enumerate(passes_of(replace(options, tuning=Watched.into(read)))):
            read.clear()
            given = before.get(number) or module.clone()
            step.run(compilation, module)
            for name in read:
                readers[name].append(number)
            if read:
                before |= {number: given, number + 1: module.clone()}
        return Lowered(options, compilation, before, readers, module, work_of(module))

    def changed(self, values: Values) -> Change | None:
        """The change of the program by other values of thresholds; None if there is none."""
        steps = passes_of(replace(self.options, tuning=replace(DEFAULT, **values)))
        first = self._first_difference(values, steps)
        if first is None:
            return None
        number, module = first
        for step in steps[number + 1 :]:
            step.run(self.compilation, module)
        if self.final.is_structurally_equivalent(module):
            return None
        work = work_of(module)
        return {
            "pass": steps[number].name,
            "instructions": ratio(work.instructions, self.work.instructions),
            "bytes": ratio(work.loaded + work.stored, self.work.loaded + self.work.stored),
        }

    def is_unmoved(self, values: Values) -> bool:
        """Whether no pass that reads these thresholds has another result."""
        steps = passes_of(replace(self.options, tuning=replace(DEFAULT, **values)))
        return self._first_difference(values, steps) is None

    def _first_difference(
        self, names: Iterable[str], steps: Sequence[Pass]
    ) -> tuple[int, ModuleOp] | None:
        """The index of the first pass with another result, and this result."""
        for number in sorted({each for name in names for each in self.readers[name]}):
            module = self.before[number].clone()
            steps[number].run(self.compilation, module)
            if not self.before[number + 1].is_structurally_equivalent(module):
                return number, module
        return None


def passes_of(options: Options) -> list[Pass]:
    return [step for _, step in planned(options)]


def work_of(module: ModuleOp) -> Work:
    return Counter(module).calls(find_program(module, "main").body.block.ops)


def ratio(now: int, before: int) -> float:
    return round(now / max(1, before), 4)


def sensitivity(lowered: Lowered, names: Iterable[str]) -> Found:
    """The thresholds that affect a program, with their changes."""
    found = defaultdict[str, dict[str, Change]](dict)
    ordered = sorted(names, key=lambda name: (lowered.readers[name], name))
    for direction in DIRECTIONS:
        for name, change in changes(lowered, ordered, direction):
            found[name][direction] = change
    return found


def changes(lowered: Lowered, names: Sequence[str], direction: str) -> Iterator[tuple[str, Change]]:
    """The change by each threshold; bisects groups, since most thresholds change nothing."""
    try:
        if len(names) != 1:
            if all(map(lowered.is_unmoved, patterns(names, direction))):
                return
        elif change := lowered.changed(values_of(names, direction)):
            yield names[0], change
    except (PopgraphError, AssertionError, ArithmeticError) as error:
        if len(names) == 1:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            yield names[0], {"error": text}
    if len(names) > 1:
        for half in (names[: len(names) // 2], names[len(names) // 2 :]):
            yield from changes(lowered, half, direction)


def values_of(names: Iterable[str], direction: str) -> Values:
    return {name: neighbour(getattr(DEFAULT, name), direction) for name in names}


def patterns(names: Sequence[str], direction: str) -> Iterator[Values]:
    """
    Other values of all thresholds together.

    Two may cancel if both are doubled, or if one is doubled and the other halved: for each pair,
    there is a pattern of either kind.
    """
    yield values_of(names, direction)
    (other,) = set(DIRECTIONS) - {direction}
    for bit in range((len(names) - 1).bit_length()):
        turned = [name for number, name in enumerate(names) if number >> bit & 1]
        yield values_of(names, direction) | values_of(turned, other)


def task_of(network: str) -> tuple[ModuleOp, Compilation, Options]:
    """The module of a network, its weights, and whether it is trained."""
    if network not in OPERATORS:
        return hashes.task_of(network)
    module, compilation = load(OPERATORS[network].model()[0])
    return module, compilation, Options()


def already_felt() -> set[str]:
    """The thresholds that affect a recorded case."""
    return {name for result in recorded() for name in result.get("felt", ())}


def results_of(
    cases: Sequence[Case], names: Sequence[str], unfelt_only: bool
) -> list[dict[str, Any]]:
    """A result for each case of one network."""
    network = cases[0].network
    if why := "" if network in OPERATORS else hashes.obstacle(network):
        print(f"{network}: skipped, {why}", flush=True)
        return []
    with without_collection():
        module, compilation, options = task_of(network)
        results = []
        for case in cases:
            tried = sorted(set(names) - already_felt()) if unfelt_only else list(names)
            machine, threads = MACHINES[case.machine], case.threads
            chosen = replace(options, machine=machine, threads=threads, measured=())
            result: dict[str, Any] = {"case": str(case), "tried": tried}
            try:
                lowered = Lowered.of(module.clone(), compilation.weights, chosen)
            except PopgraphError as error:
                result |= {"no C": str(error).splitlines()[0]}
            else:
                read = [name for name in tried if name in lowered.readers]
                result |= {"read": read, "felt": sensitivity(lowered, read)}
            results.append(result)
        return results


def recorded() -> list[dict[str, Any]]:
    """The results so far."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def run(
    cases: Iterable[Case], names: Sequence[str], jobs: int, unfelt_only: bool
) -> Iterator[dict[str, Any]]:
    """Results of the cases without one, each network in a separate process."""
    known = {
        result["case"]
        for result in recorded()
        if set(names) <= set(result["tried"]) or (unfelt_only and not result["tried"])
    }
    wanted = defaultdict[str, list[Case]](list)
    for case in cases:
        if str(case) not in known:
            wanted[case.network].append(case)
    work: Callable[..., list[dict[str, Any]]] = partial(
        results_of, names=names, unfelt_only=unfelt_only
    )
    # Forks share the imported compiler; importing it takes as long as a small network.
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for results in pool.imap(work, wanted.values()):
            yield from results


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each threshold: the number of tried cases, its readers, and the affected cases."""
    lowered = [result for result in results if "felt" in result]
    rows: dict[str, Any] = {}
    for name in THRESHOLDS:
        felt = {each["case"]: each["felt"][name] for each in lowered if name in each["felt"]}
        readers = {network_of(each["case"]) for each in lowered if name in each["read"]}
        row: dict[str, Any] = {
            "value": str(getattr(DEFAULT, name)),
            "tried": sum(name in each["tried"] for each in lowered),
            "read": len(readers),
            "felt": sorted({network_of(case) for case in felt}),
        }
        if felt:
            case = max(felt, key=lambda case: extent(felt[case]))
            row |= {"most": case} | felt[case]
        rows[name] = row
    cases = sorted({result["case"] for result in lowered})
    return {"networks": len(set(map(network_of, cases))), "cases": cases, "thresholds": rows}


def network_of(case: str) -> str:
    return case.split()[0]


def extent(changes: Mapping[str, Change]) -> float:
    """The largest change, by which the case to show is chosen."""
    ratios = [
        each.get(count, 1.0) for each in changes.values() for count in ("instructions", "bytes")
    ]
    return max((abs(math.log(each)) for each in ratios if each > 0), default=0.0)


def evidence(row: Mapping[str, Any]) -> str:
    """The sentence of a threshold's docstring: the program that changes most."""
    if not row["felt"]:
        return ""
    network, machine, threads = row["most"].split()
    texts = [f"{direction} {figures(row.get(direction))}" for direction in DIRECTIONS]
    return f"{EVIDENCE} {network} ({machine} {threads}): {', '.join(texts)}."


def figures(change: Mapping[str, Any] | None) -> str:
    """The text of a change: ratios of instructions and bytes."""
    if change is None:
        return "="
    if "error" in change:
        return "fails"
    return f"{change['instructions']:.2f}/{change['bytes']:.2f}"


def with_evidence(source: str, record: Mapping[str, Any]) -> str:
    """The source of tuning.py with docstrings updated from the record."""
    for name, row in record["thresholds"].items():
        sentence = evidence(row)
        pattern = re.compile(
            rf'(^    {name}: [^\n]*\n    """\n(?:(?!    """)[^\n]*\n)*?)'
            rf'(    (?:{EVIDENCE}|{UNFELT}) [^\n]*\n)?(?=    """\n)',
            re.MULTILINE,
        )
        if found := pattern.search(source):
            kept = found[2] if found[2] and UNFELT in found[2] else ""
            line = f"    {sentence}\n" if sentence else kept
            source = source[: found.end(1)] + line + source[found.end() :]
    return source


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, metavar="KIND/NAME")
    parser.add_argument("--machines", nargs="+", choices=MACHINES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--thresholds", nargs="+", choices=THRESHOLDS, default=THRESHOLDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--quick", action="store_true", help="few networks and machines")
    parser.add_argument("--operators", nargs="*", metavar="NAME", help="models of one operator")
    parser.add_argument("--unfelt", action="store_true", help="thresholds that no case feels yet")
    parser.add_argument("--write", action="store_true", help=f"the summary into {RECORD.name}")
    parser.add_argument("--docstrings", action="store_true", help="from the record to tuning.py")
    arguments = parser.parse_args()
    networks: Sequence[str] = hashes.QUICK if arguments.quick else NETWORKS
    if arguments.networks is not None:
        networks = arguments.networks
    if arguments.operators is not None:
        wanted = arguments.operators
        networks = [name for name, case in OPERATORS.items() if case.title in wanted or not wanted]
    machines = arguments.machines or (hashes.QUICK_MACHINES if arguments.quick else MACHINES)
    cases = (Case(*chosen) for chosen in product(networks, machines, arguments.threads))
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        for result in run(cases, arguments.thresholds, arguments.jobs, arguments.unfelt):
            print(result["case"], *result.get("felt", [result.get("no C")]), flush=True)
            file.write(json.dumps(result) + "\n")
            file.flush()
    if arguments.write:
        RECORD.write_text(json.dumps(summary(recorded()), indent=1) + "\n")
    if arguments.docstrings:
        path = Path(str(tuning.__file__))
        path.write_text(with_evidence(path.read_text(), json.loads(RECORD.read_text())))


if __name__ == "__main__":
    main()
