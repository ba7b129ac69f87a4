"""The engine: a compiled program and its random seed."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from popgraph.backends.base import Executable
from popgraph.background import Backlog
from popgraph.dialects.graphcore.random import SEED
from popgraph.engine.program import Program
from popgraph.engine.program_stages import ParallelPipeline
from popgraph.passes.graphcore.training.ranks import RANK
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError

BuildTarget: TypeAlias = tuple[str, int]
"""The backend, and the number of threads of the program."""


class Engine:
    """A program, and its compiled form for the micro-batches of a rank."""

    def __init__(self, program: Program, backlog: Backlog | None = None) -> None:
        self.program = program
        self.backlog = backlog
        """Queue in which a quick program waits for the tuned one, if any."""
        self.executable: Executable | None = None
        self.forward: Executable | None = None
        """The program of the forward pass alone, if any."""

    def compile(
        self,
        target: BuildTarget,
        rank: int = 0,
        *,
        forward: bool = False,
        overlap: ParallelPipeline | None = None,
    ) -> None:
        """
        Compiles the program of a rank and writes the optimizer's scalars.

        With `forward`, a second program with the same variables runs the forward pass alone. With
        `overlap`, there is one program per stage, if the graph can be cut.
        """
        backend, threads = target
        code = self.program.code
        staged = None if overlap is None else overlap.build(code, backend, threads)
        made = self.executable = staged or code.build(backend, threads, self.backlog)
        if forward:
            results = self.program.forward_results
            self.forward = code.build_forward(backend, threads, results, made)
        for id, array in self.program.streamed.items():
            made.write(id, array)
        if RANK in made.variables:
            made.write(RANK, np.array([rank]))

    @property
    def tuned(self) -> bool:
        """Whether the next micro-batch runs the tuned program."""
        return self.backlog is None or self.backlog.tuned

    def wait(self, timeout: float | None = None) -> bool:
        """Waits at most `timeout` seconds for the tuned program; returns whether it is ready."""
        return self.backlog is None or self.backlog.wait(timeout)

    @property
    def seed(self) -> int:
        """The seed of micro-batches, plus 2^64 times the number of runs since it was set."""
        seed, step = (int(number) for number in self.random_state.astype(np.uint64))
        return seed + step * 2**64

    @seed.setter
    def seed(self, seed: int) -> None:
        step, low = divmod(seed, 2**64)
        if not 0 <= step < 2**63:
            raise RunError(f"a seed must be an integer from 0 to 2^64 - 1, not {seed}")
        self.random_state = np.array([low, step], np.uint64).astype(np.int64)

    @property
    def random_state(self) -> Array:
        """The random state, two 64-bit integers: the seed, and the runs since it was set."""
        return self._compiled.read(SEED)

    @random_state.setter
    def random_state(self, numbers: Array) -> None:
        self._compiled.write(SEED, numbers)

    @property
    def _compiled(self) -> Executable:
        if self.executable is None:
            raise RunError("the program is not compiled", hint="compile it first")
        return self.executable
