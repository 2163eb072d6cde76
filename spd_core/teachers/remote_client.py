"""One request to a chat endpoint: bounded in time and bytes, cancellable, and with a clean message for every failure.

Knows HTTP and the key; nothing of slates. No redirect is followed, so the key goes to the named address alone, and whatever
an endpoint says is freed of the key before anything else reads it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from spd_core.errors import RemoteError
from spd_core.teachers.remote_reply import Reply, TryFailed, message_of, parse_body, quoted, read_replies
from spd_core.teachers.remote_request import NO_KEY

if TYPE_CHECKING:
    import httpx2
    import openai

REQUIREMENT = "openai>=3.57,<4"
MOST_BYTES = 2 * 1024 * 1024
"""Longest body that is read; a full trace of 8,192 tokens, streamed with 200 bytes of frame each, fits."""
ERROR_BYTES = 4096
CONNECT_S = 10.0
POLL_S = 0.05
"""How often a silent wait looks at the clock and asks whether it is cancelled."""
SHORTEST_SECRET = 8
"""Keys with fewer characters, such as EMPTY, are placeholders; taking them out of texts would garble words."""
_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Endpoint:
    """An address that answers chat requests, with the key it wants."""

    client: openai.OpenAI = field(repr=False)
    key_env: str
    timeout_s: float
    """Longest time of one request."""

    def replies(self, body: Mapping[str, Any], check: Callable[[], None]) -> Iterator[Reply]:
        """Parts of one reply as they come. The connection is closed at the next byte after the caller has left.

        Args:
            body: arguments of the chat call.
            check: called again and again while waiting; raises to give up.

        Raises:
            TryFailed: no connection, a broken one, too late, overloaded, or a failure of the server.
            RemoteError: anything that another try would not mend.
        """
        parts: SimpleQueue[Reply | Exception | None] = SimpleQueue()
        left = threading.Event()
        # A thread of its own, because a blocked read would hear neither the clock nor the caller.
        threading.Thread(target=self._read, args=(body, parts.put, left.is_set), daemon=True).start()
        deadline = time.monotonic() + self.timeout_s
        try:
            while True:
                check()
                if time.monotonic() > deadline:
                    raise self._too_late()
                try:
                    part = parts.get(timeout=POLL_S)
                except Empty:
                    continue
                if part is None:
                    return
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            left.set()

    def _read(
        self, body: Mapping[str, Any], put: Callable[[Reply | Exception | None], None], is_left: Callable[[], bool]
    ) -> None:
        """Put the parts, then None or what went wrong. Errors are made here but raised where no HTTP error is at work, whose
        request, key included, would hang on as their context."""
        import httpx2
        import openai

        outcome: Exception | None = None
        headers: dict[str, Any] = {"Accept-Encoding": "identity"}
        if self.key_env == NO_KEY:
            headers["Authorization"] = openai.Omit()
        try:
            with self.client.chat.completions.with_streaming_response.create(**body, extra_headers=headers) as response:
                pieces = _capped(response.iter_bytes(), is_left)
                kind = self.clean(response.headers.get("content-type", "").encode()).decode()
                for part in read_replies(kind, pieces, self.clean):
                    put(part)
        except RemoteError as error:
            outcome = error
        except (openai.APITimeoutError, httpx2.TimeoutException):
            outcome = self._too_late()
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            reason = self.clean(str(error.__cause__ or error).encode()).decode()
            outcome = TryFailed(f"cannot be reached or broke off ({quoted(reason)}); check base_url and that the server runs")
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            outcome = error
        put(outcome and outcome.with_traceback(None))

    def _too_late(self) -> TryFailed:
        return TryFailed(f"has not answered within {self.timeout_s:g} s; raise timeout_s, or lower concurrency")

    def clean(self, data: bytes) -> bytes:
        """`data` without the key, should an endpoint repeat it."""
        key = self.client.api_key
        return data if len(key) < SHORTEST_SECRET else data.replace(key.encode(), b"***")

    def refuse_unusable(self, response: httpx2.Response) -> None:
        """Raise unless the body that follows is worth reading; of an error's body only the first bytes are read."""
        status = response.status_code
        if 300 <= status < 400:
            target = urlsplit(self.clean(response.headers.get("location", "").encode()).decode())
            host = quoted(f"{target.scheme}://{target.hostname}", 80) if target.hostname else "another address"
            raise RemoteError(f"redirects to {host} (status {status}), which is not followed; give base_url its final form")
        if status >= 400:
            raise self._refusal(status, self._said(response), response.headers.get("retry-after"))
        if response.headers.get("content-encoding", "identity") != "identity":
            raise RemoteError("sent a compressed reply though none was asked for; its size cannot be bounded")

    def _refusal(self, status: int, said: str, retry_after: str | None) -> RemoteError:
        if status in (401, 403):  # what was said is left out: it is likely to repeat a part of the key
            has_key = self.key_env != NO_KEY
            step = f"put a valid one into {self.key_env}" if has_key else "set key_env to the variable that holds one"
            return RemoteError(f"{'refused the key' if has_key else 'wants a key'} (status {status}); {step}")
        if status == 404:
            step = "check that base_url ends in /v1 and that the model is served under this name"
            return RemoteError(f"knows no such address or model (status 404: {said}); {step}")
        if status == 429:
            return TryFailed(f"has too much to do (status 429: {said}); lower concurrency", retry_seconds(retry_after))
        if status == 408 or status >= 500:
            return TryFailed(f"failed (status {status}: {said}); see the server's log", retry_seconds(retry_after))
        step = "if it names a field: thinking, temperature and tokens_field can be set so that it is not sent"
        return RemoteError(f"refused the request (status {status}: {said}); {step}")

    def _said(self, response: httpx2.Response) -> str:
        import httpx2

        data = b""
        with suppress(httpx2.HTTPError):
            data = self.clean(next(response.iter_raw(), b""))[:ERROR_BYTES]
        if "html" in response.headers.get("content-type", ""):
            return "a web page"
        try:
            record = parse_body(data)
        except RemoteError:
            record = data.decode("utf-8", "replace")
        return quoted(message_of(record) if isinstance(record, dict) else str(record)) or "no message"


def open_endpoint(*, base_url: str, key_env: str, timeout_s: float) -> Endpoint:
    """An endpoint that is ready to be asked; nothing is sent yet.

    Raises:
        RemoteError: the package `openai` is missing, or the key is.
    """
    try:
        import openai
    except ImportError as error:
        raise RemoteError(
            f"a remote teacher needs the package openai; install it: python -m pip install '{REQUIREMENT}'"
        ) from error
    key = read_key(key_env)
    timeout = openai.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
    web = openai.DefaultHttpxClient(timeout=timeout, follow_redirects=False)
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=timeout, http_client=web)
    endpoint = Endpoint(client, key_env, timeout_s)
    web.event_hooks = {"response": [endpoint.refuse_unusable]}
    return endpoint


def read_key(key_env: str) -> str:
    """The key in an environment variable; `NO_KEY` for that name.

    Raises:
        RemoteError: the variable is not set, or its value cannot be sent; the value is not shown.
    """
    if key_env == NO_KEY:
        return NO_KEY
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise RemoteError(
            f"environment variable {key_env} holds no key; set it, or give key_env none for a server without keys"
        )
    if not _KEY.fullmatch(key):
        raise RemoteError(
            f"environment variable {key_env} holds blanks or letters beyond ASCII, which no key has; set it anew"
        )
    return key


def retry_seconds(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks to wait: a number, or a date from now on; None if it says nothing readable."""
    if header is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", header.strip()):
        return float(header)
    with suppress(ValueError):
        when = parsedate_to_datetime(header)
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return None


def _capped(pieces: Iterable[bytes], is_left: Callable[[], bool]) -> Iterator[bytes]:
    """The pieces until the caller has left.

    Raises:
        RemoteError: they hold more than `MOST_BYTES`.
    """
    read_bytes = 0
    for piece in pieces:
        read_bytes += len(piece)
        if read_bytes > MOST_BYTES:
            raise RemoteError(
                f"sent more than {MOST_BYTES // 2**20} MB, which no ranking needs; check base_url, lower max_tokens"
            )
        if is_left():
            return
        yield piece
