"""Tests programs across forks, signals, threads and unloading."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import popgraph
from popgraph import compiler, open_model
from popgraph.backends.base import Executable
from popgraph.dialects.onnx.schemas import MAKING
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError

TEXT = """
opset 21

graph net(x: f32[N, 64], labels: i32[N]) -> (y, loss) {
    weight w: f32[64, 1000] = he_normal(seed=1)
    y = Softmax(x @ w)
    loss = ai.graphcore.Nll(y, labels)
}
"""
STEP = Training("loss", SGD(learning_rate=Scalar(0.5)))
SECONDS = 20
"""Timeout after which a hanging child is killed."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "net.pgraph"
    made.write_text(TEXT)
    return made


def data(rows: int = 4) -> dict[str, Array]:
    x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
    return {"x": x, "labels": np.zeros(rows, np.int32)}


def fixed(path: Path, training: Training | None = None, threads: int = 1) -> Runner:
    """The program of a model with four rows."""
    text = path.read_text().replace("N", "4")
    path.write_text(text.replace("4ll(", "Nll("))
    return popgraph.compile(path, threads=threads, options=Options(training=training))


class Computed:
    """An input that calls a function when it is converted to an array, within a run."""

    def __init__(self, array: Array, then: Callable[[], object]) -> None:
        self.array, self.then = array, then

    def __array__(self, dtype: object = None, copy: object = None) -> Array:
        self.then()
        return self.array


def child(act: Callable[[], bool]) -> bool:
    """Whether a function returns true in a forked child, within `SECONDS`."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        good = False
        try:
            good = act()
        finally:
            os._exit(0 if good else 1)
    return os.waitpid(pid, 0)[1] == 0


def in_the_middle(run: Runner, act: Callable[[], object]) -> None:
    """Calls a function while another thread is inside `run`."""
    inside, go = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        go.wait(SECONDS)

    given = data()
    given["x"] = Computed(given["x"], wait)  # type: ignore[assignment]
    thread = threading.Thread(target=run, args=(given,))
    thread.start()
    try:
        assert inside.wait(SECONDS)
        act()
    finally:
        go.set()
        thread.join()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_of_a_fork_runs_what_another_thread_was_running(path: Path, threads: int) -> None:
    run = fixed(path, threads=threads)
    wanted = run(data())["y"]
    found = []
    in_the_middle(
        run, lambda: found.append(child(lambda: np.array_equal(run(data())["y"], wanted)))
    )
    assert found == [True]
    assert child(lambda: np.array_equal(run(data())["y"], wanted)), "and after it"


def test_variables_after_a_fork_within_a_step_are_invalid(path: Path) -> None:
    run = fixed(path, STEP)
    program = run.program(data())
    first = program.read("w")
    wanted = run(data())["loss"]

    def act() -> bool:
        with pytest.raises(RunError, match="forked in the middle of a step"):
            run(data())
        with pytest.raises(RunError, match="forked in the middle of a step"):
            program.read("w")
        for name in program.variables:
            program.write(name, first if name == "w" else states[name])
        return np.array_equal(run(data())["loss"], wanted)

    states = {name: program.read(name) for name in program.variables}
    found = []
    in_the_middle(run, lambda: found.append(child(act)))
    assert found == [True]
    run(data())


def test_a_step_that_forks_completes_in_both_processes(path: Path) -> None:
    """The fork happens inside a step, as in a signal handler that starts a process."""
    run = fixed(path, STEP)
    given, found = data(), []

    def fork() -> None:
        pid = os.fork()
        found.append(pid)

    x = given["x"]
    given["x"] = Computed(x, fork)  # type: ignore[assignment]
    loss = run(given)["loss"]
    if found == [0]:
        os._exit(0 if np.isfinite(loss).all() and np.isfinite(run(data())["loss"]).all() else 1)
    assert os.waitpid(found[0], 0)[1] == 0


def test_locks_are_free_in_a_child() -> None:
    """Importing a model takes a lock, for example."""
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        with MAKING:
            inside.set()
            go.wait(SECONDS)

    def take() -> bool:
        with MAKING:
            return True

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(SECONDS)
    found = child(take)
    go.set()
    thread.join()
    assert found


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def on(act: Callable[[], object]) -> None:
        def handler(_: int, __: FrameType | None) -> None:
            act()

        signal.signal(signal.SIGUSR1, handler)

    yield on
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_cannot_run_the_interrupted_program(
    path: Path, on_signal: Callable[[Callable[[], object]], None]
) -> None:
    run = fixed(path)
    on_signal(lambda: run(data()))
    given = data()
    given["x"] = Computed(given["x"], lambda: signal.raise_signal(signal.SIGUSR1))  # type: ignore[assignment]
    with pytest.raises(RunError, match="it was called again before the call had ended"):
        run(given)
    assert np.isfinite(run(data())["loss"]).all(), "nothing stays locked"


def test_a_signal_handler_may_read_and_run_others(
    path: Path, on_signal: Callable[[Callable[[], object]], None]
) -> None:
    run = fixed(path, STEP)
    program, other = run.program(data()), fixed(path)
    found = []
    on_signal(lambda: found.append((program.read("w"), other(data())["y"])))
    given = data()
    given["x"] = Computed(given["x"], lambda: signal.raise_signal(signal.SIGUSR1))  # type: ignore[assignment]
    run(given)
    assert len(found) == 1


# Unloading


def libraries() -> set[str]:
    """The compiled programs that are mapped into memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[-1] for line in lines if ".so" in line and "kernels" in line}


linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here")


def tasks() -> int:
    """The number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


TILED = "graph tiled(x: f32[256, 64], times: i64[2]) -> (y) { y = Exp(Tile(x, times)) }"
"""A model with a program for each value of `times`."""


@linux
@pytest.mark.parametrize("threads", [1, 2])
def test_code_and_threads_of_freed_programs_are_released(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.freeze()  # Collecting the garbage of thousands of earlier tests takes 10 s.
    monkeypatch.setattr(open_model, "SPECIALISATIONS", 2)
    run = popgraph.compile(TILED, threads=threads, quick=False)
    before, begun = libraries(), tasks()
    x, seen, most = np.ones((256, 64), np.float32), set[str](), 0
    for columns in (*range(1, 6), *range(1, 6)):
        assert run(x=x, times=np.array([4, columns]))["y"].shape == (1024, 64 * columns)
        loaded, most = libraries() - before, max(most, tasks() - begun)
        seen |= loaded
        assert len(loaded) <= 2
    assert len(seen) == 5 and threads - 1 <= most <= 2 * (threads - 1)
    del run
    gc.collect()
    assert not libraries() - before and tasks() <= begun


def test_a_running_program_survives_its_eviction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads repeatedly evict each other's programs."""
    monkeypatch.setattr(open_model, "SPECIALISATIONS", 1)
    run = popgraph.compile(path, threads=2)
    wanted = {rows: run(data(rows))["y"] for rows in (64, 65, 66)}

    def drive(turn: int) -> bool:
        rows = 64 + turn % 3
        return np.array_equal(run(data(rows))["y"], wanted[rows])

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(drive, range(24)))


def test_threads_that_meet_a_new_shape_build_it_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[object] = []
    build = compiler.BuildRequest.executable

    def counted(request: compiler.BuildRequest) -> Executable:
        built.append(request)
        return build(request)

    monkeypatch.setattr(compiler.BuildRequest, "executable", counted)
    run = popgraph.compile(path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(data(7)), range(8)))
    assert len(built) == 1
