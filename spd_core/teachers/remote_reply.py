"""What a chat endpoint sent back, read strictly: a whole body, or the chunks of a stream, each a part of one reply.

Knows bytes and JSON; nothing of connections, slates or prompts. Messages continue a sentence that names the endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spd_core.errors import RemoteError
from spd_core.teachers.ordinals import THINK_CLOSE, THINK_OPEN

REASONING_KEYS = ("reasoning_content", "reasoning")
"""Where servers that part thinking from the answer put it: vLLM and DeepSeek; Ollama and newer vLLM."""
QUOTED_CHARACTERS = 200

Clean = Callable[[bytes], bytes]


class TryFailed(RemoteError):
    """One try failed in a way that another may mend."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """What the server asked to wait; None if it did not say."""


@dataclass(frozen=True)
class Usage:
    """Tokens as the endpoint counted them."""

    prompt_tokens: int
    completion_tokens: int
    """Written, thinking included."""
    reasoning_tokens: int | None
    """Of those, spent on thinking; None where the endpoint does not say."""

    def to_json(self) -> dict[str, int | None]:
        """JSON object of all fields."""
        return asdict(self)


@dataclass(frozen=True)
class Reply:
    """A reply, or the part of it in one chunk."""

    content: str | None = None
    """None where the endpoint has sent no answer text, which is not the same as an empty one."""
    reasoning: str = ""
    """Thinking that the endpoint sent apart from the answer."""
    finish_reason: str | None = None
    usage: Usage | None = None

    def plus(self, part: Reply) -> Reply:
        """The reply with one more part at its end."""
        content = self.content if part.content is None else (self.content or "") + part.content
        reason = part.finish_reason or self.finish_reason
        return Reply(content, self.reasoning + part.reasoning, reason, part.usage or self.usage)

    @property
    def text(self) -> str:
        """Thinking in its tags, then the answer, as `ordinals.split_thinking` reads them; lone surrogates replaced."""
        thinking = self.reasoning.replace(THINK_CLOSE, "")
        opened = THINK_OPEN + thinking if thinking else ""
        closed = opened if self.content is None else (opened and opened + THINK_CLOSE) + self.content
        return closed.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_replies(content_type: str, pieces: Iterable[bytes], clean: Clean) -> Iterator[Reply]:
    """Parts of one reply as they come; a body that is not a stream gives one.

    Args:
        content_type: header of that name.
        pieces: the body, cut anywhere.
        clean: takes secrets out of bytes before anything else reads them.

    Raises:
        RemoteError: neither JSON nor a stream of it, or not a chat completion.
        TryFailed: the stream ended before the answer did.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        yield from _read_stream(pieces, clean)
    elif kind == "application/json":
        yield read_reply(parse_body(clean(b"".join(pieces))), is_chunk=False)
    else:
        sent = f"content type {quoted(kind)}" if kind else "no content type"
        raise RemoteError(f"sent {sent} in place of application/json or text/event-stream; check base_url, which ends in /v1")


def _read_stream(pieces: Iterable[bytes], clean: Clean) -> Iterator[Reply]:
    is_finished = False
    for line in _lines(pieces):
        if line.startswith(b"data:"):
            data = clean(line[5:]).strip()
            if data == b"[DONE]":
                return
            part = read_reply(parse_body(data), is_chunk=True)
            is_finished = is_finished or part.finish_reason is not None
            yield part
    if not is_finished:
        raise TryFailed("closed the stream before the answer was finished; see the server's log")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    pending = b""
    for piece in pieces:
        *lines, pending = (pending + piece).split(b"\n")
        yield from lines
    yield pending


def parse_body(data: bytes) -> object:
    """The JSON value in a body or in one event of a stream.

    Raises:
        RemoteError: there is none.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        shown = quoted(data[: 2 * QUOTED_CHARACTERS].decode("utf-8", "replace"), 40)
    raise RemoteError(f"sent {shown or 'nothing'} where JSON was expected; check that base_url is a chat endpoint's")


def read_reply(record: object, *, is_chunk: bool) -> Reply:
    """Reply, or part of one, in a parsed JSON object.

    Args:
        record: as parsed.
        is_chunk: whether it is a chunk of a stream, which may lack what a whole reply must have.

    Raises:
        RemoteError: the object reports an error, or does not follow the chat completion format.
    """
    if not isinstance(record, dict):
        raise RemoteError(f"sent a JSON {type(record).__name__} in place of an object with choices; check base_url")
    if record.get("error"):
        raise RemoteError(f"reports an error: {quoted(message_of(record))}")
    usage, choices = _usage(record.get("usage")), record.get("choices")
    if is_chunk and choices in (None, []):  # the last chunk brings the usage alone
        return Reply(usage=usage)
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise RemoteError("sent a reply without choices; check that base_url is a chat endpoint's")
    message = choices[0].get("delta" if is_chunk else "message")
    if not isinstance(message, dict) and not (is_chunk and message is None):
        raise RemoteError("sent a choice without a message; check that base_url is a chat endpoint's")
    reason = choices[0].get("finish_reason")
    reasoning = next((text for key in REASONING_KEYS if (text := _text(message or {}, key))), "")
    return Reply(_text(message or {}, "content"), reasoning, None if reason is None else quoted(str(reason), 40), usage)


def _text(message: Mapping[str, Any], key: str) -> str | None:
    value = message.get(key)
    if value is not None and not isinstance(value, str):
        raise RemoteError(f"sent {key} as a JSON {type(value).__name__}; it must be a string or null")
    return value


def _usage(record: object) -> Usage | None:
    """Token counts; None unless both are there, because half a count makes a wrong cost."""
    if not isinstance(record, dict):
        return None
    prompt, written = _count(record, "prompt_tokens"), _count(record, "completion_tokens")
    details = record.get("completion_tokens_details")
    reasoning = _count(details, "reasoning_tokens") if isinstance(details, dict) else None
    return None if prompt is None or written is None else Usage(prompt, written, reasoning)


def _count(record: Mapping[str, Any], key: str) -> int | None:
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def message_of(record: Mapping[str, Any]) -> str:
    """What an error body says: OpenAI's ``error.message``, vLLM's ``message``, FastAPI's ``detail``, in that order."""
    error = record.get("error")
    found = error.get("message") if isinstance(error, dict) else error
    return str(found or record.get("message") or record.get("detail") or "no message")


def quoted(text: str, characters: int = QUOTED_CHARACTERS) -> str:
    """At most so many characters of foreign text on one line, without control characters."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return line if len(line) <= characters else line[:characters] + " ..."
