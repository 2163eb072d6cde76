"""A student made faster while it works: a compiled prefill, prepared beside it and taken once seen to be right and fast.

Until then, and for prompts that it does not suit, the student runs as it came. Compiling needs a C++ compiler on the machine;
without one nothing changes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spd_core.backbone import base_states
from spd_core.errors import BackboneError
from spd_core.fused_llama import FusedLlama
from spd_core.model import Student

logger = logging.getLogger(__name__)

PROBE_TOKENS = (599, 1213, 257)
"""Lengths of the prompts it is tried on: about N = 20, 50 and 10; none fills whole tiles, so that this is tried too."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.08, torch.float16: 0.02}
"""Largest |difference| / |states| of a whole prompt: several times what two ways of rounding differ by."""
MIN_GAIN = 1.05
"""Times faster it must be to be taken."""
TRIES = 5
"""Timed passes of each, in turn."""
NICENESS = 10
"""Of the thread that compiles, so that visitors' rankings go first (Linux)."""


@dataclass(frozen=True)
class QuickPass:
    """A compiled prefill that was compared with the student's own."""

    run: Callable[[Tensor], Tensor]
    """(1, T) token ids -> (1, T, D) states."""
    gain: float
    """Median time of the student's own pass over its own, at the longest probe."""
    difference: float
    """Largest |difference| / |states| over the probes."""
    seconds: float
    """From start to taken."""


def quicken(student: Student) -> QuickPass:
    """The compiled pass that `student` uses from now on for prompts that go alone.

    Raises:
        BackboneError: this backbone or machine cannot, the states differ, or it is not faster; the student stays as it was.
    """
    begin = time.perf_counter()
    if student.backbone.device.type != "cpu":
        raise BackboneError(f"the student is on {student.backbone.device}; the compiled pass is for CPUs")
    run = compiled_pass(student)
    difference = max(states_differ(student, run, length) for length in PROBE_TOKENS)
    allowed = TOLERANCE[student.backbone.dtype]
    if not difference <= allowed:
        raise BackboneError(f"the compiled pass differs by {difference:.3g} of the states, {allowed:g} are allowed; not used")
    gain = time_gain(student, run, max(PROBE_TOKENS))
    if gain < MIN_GAIN:
        raise BackboneError(f"the compiled pass is {gain:.2f} times as fast, {MIN_GAIN:g} are wanted; not used")
    student.quick = run
    return QuickPass(run, gain, difference, time.perf_counter() - begin)


def compiled_pass(student: Student) -> Callable[[Tensor], Tensor]:
    """The student's prefill of one prompt, compiled for any length.

    Layers are compiled one by one: they are alike, so one compilation serves them all, in less than half the time of a whole
    pass, in which visitors wait longer.

    Raises:
        BackboneError: the backbone has no fused form, or there is no working C++ compiler.
    """
    from torch._inductor import config

    fused = FusedLlama(student.model).eval()
    for layer in fused.layers:
        layer.compile(dynamic=True)

    def run(input_ids: Tensor) -> Tensor:
        with torch.compiler.set_stance("eager_on_recompile"):  # a new length never makes anyone wait for a compiler
            states: Tensor = fused(input_ids)
        return states

    try:
        with torch.inference_mode(), config.patch(compile_threads=1):
            fused(probe(student, PROBE_TOKENS[0]))
    except Exception as error:  # whatever a compiler may say: it is not needed
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackboneError(f"the pass could not be compiled ({first_line[:120]}); the student runs as it came") from error
    return run


def probe(student: Student, length: int) -> Tensor:
    """(1, length) token ids drawn at random, the same for all students of one vocabulary."""
    drawn = torch.Generator().manual_seed(length)
    return torch.randint(student.model.config.vocab_size, (1, length), generator=drawn)  # type: ignore[union-attr, arg-type]


@torch.inference_mode()
def states_differ(student: Student, run: Callable[[Tensor], Tensor], length: int) -> float:
    """`relative_difference` of one probe to the student's own states."""
    ids = probe(student, length)
    return relative_difference(run(ids), base_states(student.model, ids))


def relative_difference(states: Tensor, reference: Tensor) -> float:
    """|states - reference| / |reference|, both Frobenius norms; NaN where a state is not finite."""
    own = reference.double()
    return float((states.double() - own).norm() / own.norm())


@torch.inference_mode()
def time_gain(student: Student, run: Callable[[Tensor], Tensor], length: int) -> float:
    """Median time of the student's own pass over that of `run`, taken in turn."""
    ids = probe(student, length)
    times: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * TRIES):
        is_quick = bool(turn % 2)
        begin = time.perf_counter()
        run(ids) if is_quick else base_states(student.model, ids)
        times[is_quick].append(time.perf_counter() - begin)
    return statistics.median(times[False]) / statistics.median(times[True])


def quicken_aside(student: Student, *, after_seconds: float = 0.0) -> threading.Thread:
    """The thread that makes `student` quick while it is used; what comes of it goes to the log.

    Args:
        student: on the CPU, in eval mode.
        after_seconds: to wait first, for whoever has just come.
    """

    def work() -> None:
        if sys.platform == "linux":  # elsewhere a priority is that of the whole process
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            found = quicken(student)
        except BackboneError as error:
            logger.info("no compiled pass: %s", error)
        else:
            logger.info("compiled pass ready after %.0f s: %.2f times as fast", found.seconds, found.gain)

    thread = threading.Timer(after_seconds, work)
    thread.name, thread.daemon = "quicken", True
    thread.start()
    return thread
