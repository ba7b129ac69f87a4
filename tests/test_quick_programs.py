"""Tests quick programs: their results, and their replacement by tuned ones from the background."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

import popgraph
from popgraph.backends.base import Executable
from popgraph.backends.c.build_program import build as build_c
from popgraph.background import NOTICE, VARIABLE, backlog_for
from popgraph.compiler import for_this_machine, lower
from popgraph.passes.base import Compilation
from popgraph.passes.goals import quick
from popgraph.passes.optimizer_spec import Adam, Scalar
from popgraph.passes.options import Options, Training
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.forked import Child, can_fork
from popgraph.support.tuning import Tuning
from popgraph.support.warnings import UntunedProgramWarning
from popgraph.testing import Network, build_network, networks
from tests.gated_compiler import SECONDS, assert_tuned, compile_by, gated, use_fresh_cache

TEXT = """
opset 21

graph net(x: f32[ROWS, 64], labels: i32[ROWS]) -> (y, loss) {
    weight w: f32[64, 256] = he_normal(seed=1)
    weight v: f32[256, 10] = he_normal(seed=2)
    h = x @ w |> Relu |> Dropout(0.3)
    y = Softmax(h @ v)
    loss = ai.graphcore.Nll(y, labels)
}
"""
ADAM = Training("loss", Adam(learning_rate=Scalar(0.01)))


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate program cache for every test."""
    use_fresh_cache(tmp_path, monkeypatch)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file whose existence lets the compiler of tuned programs continue."""
    yield from gated(tmp_path, monkeypatch)


def model(folder: Path, rows: int | str = 4) -> Path:
    """Writes the file of a network."""
    path = folder / "net.pgraph"
    path.write_text(TEXT.replace("ROWS", str(rows)))
    os.utime(path, (1, 1))  # Shortcuts require a file that is not brand-new.
    return path


def data(rows: int = 4, seed: int = 0) -> dict[str, Array]:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, 64)).astype(np.float32)
    return {"x": x, "labels": draw.integers(0, 10, rows).astype(np.int32)}


def close(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cached", [True, False], ids=["in a child", "in a thread"])
def test_a_tuned_program_replaces_a_quick_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Path, cached: bool
) -> None:
    if not cached:
        monkeypatch.setenv("POPGRAPH_PROGRAM_CACHE", "0")
    run = popgraph.compile(model(tmp_path), quick=True)
    assert not run.tuned and not run.wait(timeout=0)
    assert "quick       until tuned programs have been built" in repr(run)
    first = run(data())
    gate.touch()
    assert_tuned(run)
    assert "quick" not in repr(run)
    later, wanted = run(data()), popgraph.compile(model(tmp_path))(data())
    close(first, wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(later[name], array)


def test_cached_programs_are_not_built_quickly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = popgraph.compile(model(tmp_path), quick=True)
    run(data())
    assert_tuned(run)
    monkeypatch.setenv("CC", "/bin/false")
    path = model(tmp_path)
    again = popgraph.compile(path, quick=True)
    assert again.tuned and again.static is not None
    assert popgraph.compile(path.read_text(), quick=True).tuned, "without a file, too"
    close(again(data()), run(data()))


def test_no_shortcut_is_written_after_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Path
) -> None:
    """Imports are relative to a text, so a shortcut written from another folder could be wrong."""
    run = popgraph.compile(model(tmp_path), quick=True)
    monkeypatch.chdir(tmp_path)
    gate.touch()
    assert_tuned(run)
    assert not list((tmp_path / "cache").glob("shortcuts/*/*"))


def test_training_continues_from_the_quick_program(tmp_path: Path, gate: Path) -> None:
    """Weights, moments, step count and random state carry over to the tuned program."""

    def steps(run: Runner, seeds: range) -> list[Array]:
        return [run(data(seed=seed))["loss"] for seed in seeds]

    options = Options(training=ADAM)
    run = popgraph.compile(model(tmp_path), options=options, quick=True)
    program = run.static
    assert program is not None
    found = steps(run, range(6))
    assert not run.tuned
    before = {name: program.read(name) for name in program.variables}
    gate.touch()
    assert_tuned(run)
    for name, array in before.items():
        np.testing.assert_array_equal(program.read(name), array)
    found += steps(run, range(6, 12))
    plain = popgraph.compile(model(tmp_path), options=options)
    assert plain.static is not None and len(plain.static.variables) > 4
    wanted = steps(plain, range(12))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    for name in program.variables:
        np.testing.assert_allclose(
            program.read(name), plain.static.read(name), rtol=1e-3, atol=1e-5, err_msg=name
        )


def test_no_step_is_lost_while_threads_run(tmp_path: Path, gate: Path) -> None:
    options = Options(training=ADAM)
    run = popgraph.compile(model(tmp_path), options=options, quick=True)
    turns = 0

    def step_until_tuned() -> None:
        nonlocal turns
        more = 20
        while more:
            more -= run.tuned
            run(data())
            with counting:
                turns += 1

    counting = threading.Lock()
    threads = [threading.Thread(target=step_until_tuned) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.touch()
    for thread in threads:
        thread.join(SECONDS)
    plain = popgraph.compile(model(tmp_path), options=options)
    for _ in range(turns):
        plain(data())
    assert run.static is not None and plain.static is not None
    for name in plain.static.variables:
        np.testing.assert_allclose(
            run.static.read(name), plain.static.read(name), rtol=1e-2, atol=1e-3, err_msg=name
        )


def test_every_size_gets_a_quick_program(tmp_path: Path, gate: Path) -> None:
    run = popgraph.compile(model(tmp_path, "rows"), quick=True)
    assert run.tuned, "nothing waits"
    first = {rows: run(data(rows)) for rows in (3, 5)}
    assert not run.tuned and len(run.kept) == 2
    gate.touch()
    assert_tuned(run)
    again = popgraph.compile(model(tmp_path, "rows"), quick=True)
    for rows, found in first.items():
        close(run(data(rows)), found)
        close(again(data(rows)), found)
    assert again.tuned
    assert not (again(data(7)), again.tuned)[1], "one that the cache does not have"


def test_a_failing_build_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by(tmp_path, monkeypatch, "echo error: no room for it >&2; exit 1")
    run = popgraph.compile(model(tmp_path), quick=True)
    with pytest.warns(UntunedProgramWarning, match="no room for it"):
        first = run(data())
        assert not run.wait(SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(run(data()), first)
    assert not run.tuned


RUN = """
import os, pathlib, signal, sys
import numpy as np
import popgraph

run = popgraph.compile(sys.argv[1], quick=True)
started = pathlib.Path(sys.argv[2])
x, labels = np.zeros((4, 64), np.float32), np.zeros(4, np.int32)
run(x=x, labels=labels)
while not started.exists():
    run(x=x, labels=labels)
print("answered", run.tuned)
"""


def run_process(folder: Path, more: str = "") -> subprocess.CompletedProcess[str]:
    """A process that runs a quick program until the compiler of the tuned one has started."""
    command = [sys.executable, "-c", RUN + more, str(model(folder)), str(folder / "started")]
    return subprocess.run(command, capture_output=True, text=True, start_new_session=True)


def is_alive(pid: str) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def has_ended(pid: str) -> bool:
    """Whether a terminated process ends soon."""
    last = time.monotonic() + SECONDS / 2
    while is_alive(pid) and time.monotonic() < last:
        time.sleep(0.05)
    return not is_alive(pid)


@pytest.mark.parametrize("cached", [True, False], ids=["in a child", "in a thread"])
def test_a_process_may_end_while_a_program_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    if not cached:  # Without a cache, it waits for the compiler.
        monkeypatch.setenv("POPGRAPH_PROGRAM_CACHE", "0")
    sleep = 1 if not cached else SECONDS
    compile_by(tmp_path, monkeypatch, f"echo $$ >> {tmp_path}/started; exec sleep {sleep}")
    began = time.monotonic()
    done = run_process(tmp_path)
    assert time.monotonic() - began < SECONDS, "it does not wait for a child's compiler"
    assert (done.stdout, done.stderr, done.returncode) == ("answered False\n", "", 0)
    assert all(map(has_ended, (tmp_path / "started").read_text().split()))
    left = [path for path in (tmp_path / "cache/kernels").rglob("*") if path.suffix == ".c"]
    assert not left, "partial files are removed"
    monkeypatch.delenv("CC")
    assert popgraph.compile(model(tmp_path))(data())["loss"].size == 1


@pytest.mark.skipif(not can_fork(), reason="there are no children here")
def test_a_compiler_started_by_an_ending_child_is_terminated(tmp_path: Path) -> None:
    """A compiler that the child starts while it is being terminated is terminated, too."""
    begun, late = tmp_path / "begun", tmp_path / "late"

    def work() -> None:
        begun.touch()
        try:
            time.sleep(SECONDS)
        finally:
            late.write_text(str(subprocess.Popen(["sleep", str(SECONDS)]).pid))

    child = Child(work, nullcontext())
    waiting = threading.Thread(target=child.outcome)
    waiting.start()
    while not begun.exists():
        time.sleep(0.01)
    child.end()
    waiting.join()
    assert has_ended(late.read_text())


def test_a_killed_child_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by(tmp_path, monkeypatch, f"echo $$ >> {tmp_path}/started; kill -9 $PPID")
    done = run_process(tmp_path, "print(run.wait(60)); run(x=x, labels=labels)")
    assert (done.stdout, done.returncode) == ("answered False\nFalse\n", 0)
    assert done.stderr.count("UntunedProgramWarning") == done.stderr.count("SIGKILL") == 1


def test_sigint_of_a_terminal_does_not_end_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGINT of a terminal is for the foreground call, not for the build."""
    gate = tmp_path / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    compile_by(tmp_path, monkeypatch, f"echo $$ >> {tmp_path}/started; {wait}")
    interrupt = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # A job in the background ignores it.
try:
    os.killpg(0, signal.SIGINT)
    while True:
        run(x=x, labels=labels)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[2]).with_name("gate").touch()
    print(run.wait(60))
"""
    done = run_process(tmp_path, interrupt)
    assert (done.stdout, done.stderr) == ("answered False\nTrue\n", "")


def test_a_thread_builds_if_no_process_can_be_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", fork)
    run = popgraph.compile(model(tmp_path), quick=True)
    first = run(data())
    assert_tuned(run)
    close(run(data()), first)


def test_a_forked_child_keeps_the_quick_program(tmp_path: Path, gate: Path) -> None:
    run = popgraph.compile(model(tmp_path), quick=True)
    wanted = run(data())
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)
        good = not run.wait() and np.array_equal(run(data())["y"], wanted["y"])
        os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0
    gate.touch()
    assert_tuned(run)


def test_inputs_may_be_donated_from_the_first_run(tmp_path: Path) -> None:
    path = tmp_path / "cache.pgraph"
    path.write_text("opset 21\n\ngraph g(a: f32[64, 64]) -> (b) {\n    b = Relu(a)\n}\n")
    run = popgraph.compile(path, quick=True)
    given = np.ones((64, 64), np.float32)
    found = run({"a": given}, donate=["a"])["b"]
    assert np.shares_memory(found, given) and dict(run.donations) == {"a": "b"}


def built(network: Network, options: Options, *, soon: bool) -> Executable:
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    lower(module, compilation, options)
    return build_c(module, compilation.weights, soon=soon)


@given(networks())
def test_quick_programs_compute_the_same(network: Network) -> None:
    # Small contractions get register tiles, too.
    options = for_this_machine(Options(tuning=Tuning(quick_products=0)))
    soon, plain = built(network, quick(options), soon=True), built(network, options, soon=False)
    assert (soon.inputs, soon.outputs) == (plain.inputs, plain.outputs)
    draw = np.random.default_rng(0)
    inputs = {
        name: draw.standard_normal(shape).astype(dtype.numpy)
        for name, (dtype, shape) in plain.inputs.items()
    }
    wanted = plain.run(inputs)
    for name, array in soon.run(inputs).items():
        scale = float(np.max(np.abs(wanted[name]), initial=1, where=np.isfinite(wanted[name])))
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5 * scale)


class Terminal(io.StringIO):
    """An interactive terminal."""

    def isatty(self) -> bool:
        return True


def in_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """
    Makes stdout and stderr a terminal, in which the choice of quick programs is open.

    A test calls it, since pytest sets both streams after its fixtures.
    """
    for name in (VARIABLE, "CI", "POPGRAPH_DETERMINISM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("popgraph.background.PRINTED", set())
    return screen


def chosen(quick: bool | None = None, determinism: str = "", *, trains: bool = False) -> str:
    """The kind of program that a native backend builds first."""
    found = backlog_for(quick, is_native=True, determinism=determinism, trains=trains)
    if found is None:
        return "tuned"
    return "quick if large" if found.is_automatic else "quick"


def test_a_terminal_gets_quick_programs_for_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    in_terminal(monkeypatch)
    assert chosen() == "quick if large"
    assert chosen(trains=True) == "tuned", "bits of trained weights would vary"
    assert chosen(True) == "quick" and chosen(False) == "tuned"
    assert backlog_for(True, is_native=False) is None
    monkeypatch.setenv("CI", "true")
    assert chosen() == "tuned"


def test_scripts_get_the_same_bits_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    in_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert chosen() == "tuned"
    for trains in (False, True):
        assert chosen(determinism="portable", trains=trains) == "quick if large"
    shell = SimpleNamespace(get_ipython=lambda: object())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert chosen() == "quick if large", "a notebook has no terminal"


def test_the_environment_decides_open_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    in_terminal(monkeypatch)
    monkeypatch.setenv(VARIABLE, "0")
    assert chosen() == chosen(determinism="portable") == "tuned"
    assert chosen(True) == "quick"
    monkeypatch.setenv(VARIABLE, "1")
    assert chosen(trains=True) == "quick" and chosen(False) == "tuned"
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(RunError, match="POPGRAPH_QUICK is 'yes'"):
        chosen()


def test_large_models_answer_soon_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Path
) -> None:
    """A second process that is as short-lived finds the quick program in the cache."""
    terminal = in_terminal(monkeypatch)
    monkeypatch.setattr("popgraph.compiler.requests.LEAST_OPERATIONS", 1)
    path = model(tmp_path)
    run = popgraph.compile(path)
    assert not run.tuned
    assert terminal.getvalue().count(NOTICE) == 1
    first = run(data())
    compile_by(tmp_path, monkeypatch, "exit 1")
    script = tmp_path / "compiler"
    script.write_text("#!/bin/sh\nexit 1\n")
    again = popgraph.compile(path)
    assert not again.tuned, "a cached quick program is not a tuned one"
    np.testing.assert_array_equal(again(data())["y"], first["y"])
    assert terminal.getvalue().count(NOTICE) == 1, "once per process"


def test_small_models_are_tuned_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    assert popgraph.compile(model(tmp_path)).tuned
    assert NOTICE not in terminal.getvalue()


def test_programs_for_many_sizes_are_tuned_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Path
) -> None:
    in_terminal(monkeypatch)
    monkeypatch.setattr("popgraph.compiler.requests.LEAST_OPERATIONS", 1)
    run = popgraph.compile(model(tmp_path, "rows"))
    run(data(3))
    assert not run.tuned
    gate.touch()
    for rows in (4, 5, 6):
        run(data(rows))
    assert len(run.programs) == 2 and run.programs[-1].bounds == {"rows": 8}
