"""A profile as a trace of passes and calls over time, for Chrome's viewer and Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from popgraph.measure.profile_report import Call, Report, own_time

Event = dict[str, Any]
COMPILER, PROGRAM = 1, 2
"""Process numbers of the trace: the compiler, and the compiled program."""


def chrome_trace(found: Report) -> dict[str, Any]:
    """
    The trace as one object, to be written as JSON.

    Passes and calls appear in the order in which they ran; times come from the report, which
    measures each alone. A parallel call appears on every thread that runs a chunk of it, for as
    long as the slowest thread takes.
    """
    events = [
        _process(COMPILER, "compiler"),
        _process(PROGRAM, f"{found.model}, a step"),
        *(_thread(number) for number in range(1, found.threads + 1)),
        *_passes(found),
        *_calls(found.calls, 0.0, found.threads),
        *_memory(found.calls),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _process(number: int, name: str) -> Event:
    return {"ph": "M", "pid": number, "tid": 1, "name": "process_name", "args": {"name": name}}


def _thread(number: int) -> Event:
    told = {"name": f"thread {number}"}
    return {"ph": "M", "pid": PROGRAM, "tid": number, "name": "thread_name", "args": told}


def _span(
    process: int, name: str, start: float, length: float, thread: int = 1, **told: object
) -> Event:
    place = {"ph": "X", "pid": process, "tid": thread, "ts": start, "dur": length}
    return {**place, "name": name, "args": told}


def _passes(found: Report) -> Iterator[Event]:
    start = 0.0
    for step in found.passes:
        yield _span(COMPILER, step.name, start, step.microseconds)
        start += step.microseconds


def _calls(calls: list[Call], start: float, threads: int) -> Iterator[Event]:
    """Calls in sequence; calls of bodies are nested in the call that runs them."""
    for call in calls:
        told = {"from": call.source, "calls": call.count, "flops": call.flops, "bytes": call.moved}
        for thread in range(1, min(threads, call.chunks) + 1):
            yield _span(PROGRAM, call.kernel, start, call.microseconds, thread, **told)
        inside = start
        for body in call.bodies:
            yield from _calls(body.calls, inside, threads)
            inside += sum(one.microseconds for one in body.calls)
        if call.kind in ("branch", "loop"):
            yield _span(PROGRAM, own_time(call).kernel, inside, call.own)
        start += call.microseconds


def _memory(calls: list[Call]) -> Iterator[Event]:
    """The bytes of the arena that are in use, call by call."""
    start = 0.0
    for call in calls:
        used = {"bytes in use": call.in_use}
        yield {"ph": "C", "pid": PROGRAM, "ts": start, "name": "arena", "args": used}
        start += call.microseconds
