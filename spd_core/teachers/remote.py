"""A teacher behind any OpenAI-compatible chat endpoint: vLLM, Ollama, or a hosted model.

Building one reads the key and sends nothing; `answer` and `answers` do. What is asked is in `remote_request`, how it travels
in `remote_client`, how replies are read in `remote_reply`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from spd_core.errors import RemoteError
from spd_core.slate import Ranking, Slate
from spd_core.teachers.answers import AnswerCancelled, OnToken, TeacherAnswer, TokenEvent, judged
from spd_core.teachers.ordinals import FULL_WIDTH, THINK_CLOSE, parse_answer
from spd_core.teachers.remote_client import Endpoint, open_endpoint
from spd_core.teachers.remote_reply import Reply, TryFailed, Usage
from spd_core.teachers.remote_request import RemoteSettings, new_settings, request_body

FIRST_WAIT_S = 1.0
"""Middle of the first wait; each further one doubles it."""
LONGEST_WAIT_S = 60.0
"""A server that asks to wait longer is not waited for."""
NAP_S = 0.25
"""How often a wait asks whether it is cancelled."""
AHEAD = 2
"""Slates taken ahead in `answers`, in units of the concurrency: one slow answer does not idle the rest."""


def remote_teacher(*, base_url: str, model: str, **settings: Any) -> RemoteTeacher:
    """A teacher that asks `model` at `base_url`; nothing is sent yet.

    Args:
        base_url: address of the endpoint up to its version, e.g. ``http://localhost:8000/v1``.
        model: name under which the endpoint serves the model.
        settings: further fields of `RemoteSettings`, e.g. ``concurrency=32``; leave out what the user has not set.

    Raises:
        RemoteError: a setting is not allowed, the package `openai` is missing, or the key is not in the environment.
    """
    chosen = new_settings(base_url=base_url, model=model, **settings)
    endpoint = open_endpoint(base_url=chosen.base_url, key_env=chosen.key_env, timeout_s=chosen.timeout_s)
    return RemoteTeacher(chosen, endpoint)


@dataclass(frozen=True)
class RemoteTeacher:
    """A language model that writes rankings somewhere else."""

    settings: RemoteSettings
    endpoint: Endpoint = field(repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    """Waits between tries."""
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    """Numbers in [0, 1) that spread the waits of many clients."""

    @property
    def name(self) -> str:
        """Name written into each answer."""
        return self.settings.name or self.settings.model

    def rank(self, slate: Slate) -> Ranking:
        """Ranking of a slate, repaired where the answer was not valid.

        Raises:
            RemoteError: as in `answer`.
        """
        return self.answer(slate).ranking

    def answer(
        self, slate: Slate, *, on_token: OnToken | None = None, is_cancelled: Callable[[], bool] = lambda: False
    ) -> TeacherAnswer:
        """Answer for one slate.

        Args:
            slate: any slate.
            on_token: called with each chunk that the server sends, which may hold several tokens; once, with the whole
                answer, where it does not stream. After a broken stream it hears the next try from its start.
            is_cancelled: asked all the time, also while the server is silent and between tries.

        Returns:
            The answer, invalid ones judged by kind. `ms` counts from the call, waits and failed tries included; `passes` is
            0; `tokens` and `prompt_tokens` are the server's counts, 0 where it gives none (`extra["usage"]` is None then).
            `extra` further holds `attempts`, `finish_reason`, `reasoning_tokens` and `cost` (of the last try; None without
            prices or counts).

        Raises:
            AnswerCancelled: `is_cancelled` said so.
            RemoteError: the endpoint failed, `most_tries` times where another try could mend it.
        """
        where = f"slate {slate.slate_id!r}"
        watch = _Watch(len(slate.candidates), self.settings.thinking is True, on_token)
        body = request_body(slate, self.settings, is_streamed=on_token is not None and self.settings.stream)

        def check() -> None:
            if is_cancelled():
                raise AnswerCancelled(f"{where}: cancelled")

        try:
            reply, attempts = self._repeat(lambda: watch.read(self.endpoint.replies(body, check)), check)
            _check_text(reply)
        except RemoteError as error:
            raise RemoteError(f"{where}: model {self.settings.model!r} at {self.settings.base_url} {error}") from error
        return self._judged(slate, reply, watch, attempts)

    def answers(self, slates: Iterable[Slate]) -> Iterator[TeacherAnswer]:
        """Answers in input order, `concurrency` slates at a time; at most twice as many are read ahead.

        Raises:
            RemoteError: as in `answer`, once the answers before have been given; what is under way is then given up.
        """
        is_left = threading.Event()
        pool = ThreadPoolExecutor(self.settings.concurrency)
        waiting: deque[Future[TeacherAnswer]] = deque()
        try:
            for slate in slates:
                waiting.append(pool.submit(self.answer, slate, is_cancelled=is_left.is_set))
                if len(waiting) >= AHEAD * self.settings.concurrency:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            is_left.set()
            pool.shutdown(cancel_futures=True)

    def _repeat(self, ask: Callable[[], Reply], check: Callable[[], None]) -> tuple[Reply, int]:
        """Reply and the number of tries it took."""
        for attempt in range(1, self.settings.most_tries + 1):
            try:
                return ask(), attempt
            except TryFailed as error:
                failure = error
            asked = failure.retry_after_s or 0.0
            if asked > LONGEST_WAIT_S:
                raise RemoteError(f"{failure}; it asks to wait {asked:.0f} s, so run again later") from failure
            if attempt < self.settings.most_tries:
                self._wait(max(asked, FIRST_WAIT_S * 2 ** (attempt - 1) * (0.5 + self.jitter())), check)
        raise RemoteError(f"{failure}; tried {attempt} times") from failure

    def _wait(self, seconds: float, check: Callable[[], None]) -> None:
        while seconds > 0:
            check()
            self.sleep(min(seconds, NAP_S))
            seconds -= NAP_S

    def _judged(self, slate: Slate, reply: Reply, watch: _Watch, attempts: int) -> TeacherAnswer:
        usage = reply.usage
        answer = judged(
            slate,
            reply.text,
            teacher=self.name,
            mode="remote",
            prompt_tokens=usage.prompt_tokens if usage else 0,
            tokens=usage.completion_tokens if usage else 0,
            passes=0,
            ms=watch.elapsed_ms(),
            first_token_ms=watch.times[0] if watch.times else None,
            token_ms=tuple(watch.times),
            extra={
                "attempts": attempts,
                "finish_reason": reply.finish_reason,
                "usage": usage.to_json() if usage else None,
                "reasoning_tokens": usage.reasoning_tokens if usage else None,
                "cost": cost_of(usage, self.settings),
            },
        )
        if answer.is_repaired and reply.finish_reason == "length":
            problem = "stopped at the limit of tokens (finish_reason length); raise max_tokens"
            answer = replace(answer, problems=(*answer.problems, problem))
        return answer


class _Watch:
    """Times the parts of one answer and tells whoever watches."""

    def __init__(self, count: int, thinks: bool, on_token: OnToken | None) -> None:
        self.start = time.perf_counter()
        self.count = count
        self.thinks = thinks
        self.on_token = on_token
        self.times: list[float] = []
        """Of the chunks with text of the last try, if somebody watches."""

    def elapsed_ms(self) -> float:
        """Since the slate was handed over."""
        return (time.perf_counter() - self.start) * 1e3

    def read(self, parts: Iterable[Reply]) -> Reply:
        """The whole of one try's parts."""
        self.times.clear()
        reply = Reply()
        for part in parts:
            reply = reply.plus(part)
            if self.on_token is not None and (part.content or part.reasoning):
                self.times.append(self.elapsed_ms())
                text = reply.text
                order = named_so_far(text, self.count, thinks=self.thinks)
                self.on_token(TokenEvent(len(self.times) - 1, text, self.times[-1], order))
        return reply


def named_so_far(text: str, count: int, *, thinks: bool) -> tuple[int, ...]:
    """Candidate indices in an unfinished answer, valid ones only, each once; a last number counts when it has ended.

    Args:
        text: so far.
        count: N, candidates of the slate.
        thinks: whether the model was told to think, so that nothing before the end of its thinking is an answer.
    """
    if thinks and THINK_CLOSE not in text:
        return ()
    ordinals = parse_answer(text.translate(FULL_WIDTH).rstrip("0123456789"), count).ordinals
    return tuple(dict.fromkeys(ordinal - 1 for ordinal in ordinals if 1 <= ordinal <= count))


def cost_of(usage: Usage | None, settings: RemoteSettings) -> float | None:
    """Price of one reply in the settings' currency; None unless both prices and both counts are known."""
    if usage is None or settings.input_price is None or settings.output_price is None:
        return None
    return (usage.prompt_tokens * settings.input_price + usage.completion_tokens * settings.output_price) / 1e6


def _check_text(reply: Reply) -> None:
    """Raise unless there is something to judge; a model that thinks up to the limit has at least said that."""
    if reply.content is None and not reply.reasoning and reply.finish_reason != "length":
        reason = f"finish_reason {reply.finish_reason}" if reply.finish_reason else "no finish_reason"
        raise RemoteError(f"sent no text ({reason}); try another model, or see the server's log")
