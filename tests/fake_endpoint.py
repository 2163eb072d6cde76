"""A chat endpoint on this machine that behaves, or misbehaves, as a test says; it counts what it is asked.

A behaviour is a function of one request's handler. Several make a script: request k meets behaviour k, the last one stays.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 200, "completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 30}}
DRIP_S = 0.01


@dataclass
class FakeEndpoint:
    """What a running fake knows."""

    url: str = ""
    """As `base_url`."""
    requests: list[Asked] = field(default_factory=list)
    """In order of arrival."""
    is_closing: threading.Event = field(default_factory=threading.Event)
    """Set when the test is over; what hangs ends then."""
    has_request: threading.Event = field(default_factory=threading.Event)
    """Set once something was asked."""
    has_hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when the client hung up in the middle of a reply."""
    sockets: list[socket.socket] = field(default_factory=list)
    """Of all connections; shut when the test is over, so that no thread waits for a next request."""
    bytes_sent: int = 0
    """By `huge`, until the client hung up."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    headers: dict[str, str]
    """By name in lower case."""
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        """Text of the user's message."""
        return str(self.body["messages"][-1]["content"])


class Handler(BaseHTTPRequestHandler):
    """Reads one request and hands itself to the behaviour whose turn it is."""

    protocol_version = "HTTP/1.1"
    fake: FakeEndpoint
    script: Sequence[Behaviour]
    turns: threading.Lock
    asked: Asked

    def setup(self) -> None:
        """Remember the connection."""
        super().setup()
        self.fake.sockets.append(self.connection)

    def do_POST(self) -> None:
        """Answer a chat request."""
        length = int(self.headers.get("content-length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked = Asked(self.path, headers, json.loads(self.rfile.read(length)))
        with self.turns:
            self.fake.requests.append(self.asked)
            behave = self.script[min(len(self.fake.requests), len(self.script)) - 1]
        self.fake.has_request.set()
        try:
            behave(self)
        except ConnectionError:
            self.fake.has_hung_up.set()

    def do_GET(self) -> None:
        """A redirect that was followed ends here, and is counted."""
        self.fake.requests.append(Asked(self.path, dict(self.headers), {}))
        self.send(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def send(self, body: bytes, *, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        """One reply, whole unless a longer `content_length` is claimed; the connection is closed then."""
        length = headers.pop("content_length", str(len(body)))
        self.close_connection = length != str(len(body))
        self.begin(status, kind, content_length=length, **headers)
        self.wfile.write(body)

    def begin(self, status: int, kind: str, **headers: str) -> None:
        """Status line and headers; without a length the connection is closed at the end."""
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "content_length" not in headers:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()


Behaviour = Callable[[Handler], None]


@contextlib.contextmanager
def serving(*script: Behaviour) -> Iterator[FakeEndpoint]:
    """A fake that is up for the length of the block, on a port of its own."""
    fake = FakeEndpoint()
    handler = type("OwnHandler", (Handler,), {"fake": fake, "script": script, "turns": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    fake.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        fake.is_closing.set()
        server.shutdown()
        server.server_close()
        for connection in fake.sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()


def completion(content: str | None, *, finish: str = "stop", usage: object = None, **message: Any) -> bytes:
    """Body of a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content} | message, "finish_reason": finish}
    record = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage or USAGE}
    return json.dumps(record).encode()


def says(content: str | None, **fields: Any) -> Behaviour:
    """Answers with a completion."""
    return lambda handler: handler.send(completion(content, **fields))


def sends(body: bytes, **how: Any) -> Behaviour:
    """Answers with these bytes."""
    return lambda handler: handler.send(body, **how)


def event(delta: dict[str, Any] | None, *, finish: str | None = None, usage: object = None) -> bytes:
    """One event of a stream; with no `delta` it has no choices, as the one that brings the usage."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "x", "choices": choices, "usage": usage}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streams(*events: bytes) -> Behaviour:
    """Answers with a stream of these events and closes the connection."""

    def behave(handler: Handler) -> None:
        handler.begin(200, "text/event-stream; charset=utf-8")
        for one in events:
            handler.wfile.write(one)
            handler.wfile.flush()

    return behave


def writes(*deltas: str, finish: str = "stop") -> Behaviour:
    """A well-behaved stream: the texts one by one, the reason, the usage, the end."""
    parts = [event({"content": text}) for text in ("", *deltas)]
    return streams(*parts, event({}, finish=finish), event(None, usage=USAGE), DONE)


def chunked_then_gone(*events: bytes) -> Behaviour:
    """A chunked stream whose last chunk never comes: the connection is cut."""

    def behave(handler: Handler) -> None:
        handler.begin(200, "text/event-stream", transfer_encoding="chunked")
        for one in events:
            handler.wfile.write(f"{len(one):x}\r\n".encode() + one + b"\r\n")

    return behave


def hangs_up(handler: Handler) -> None:
    """Closes the connection without a word."""
    handler.close_connection = True


def stays_silent(handler: Handler) -> None:
    """Takes the request and says nothing until the test is over."""
    handler.fake.is_closing.wait()
    handler.close_connection = True


def drips(kind: str, piece: bytes) -> Behaviour:
    """Sends a piece again and again, far apart enough to never end and close enough to never be silent."""

    def behave(handler: Handler) -> None:
        handler.begin(200, kind)
        while not handler.fake.is_closing.wait(DRIP_S):
            handler.wfile.write(piece)
            handler.wfile.flush()

    return behave


def drips_headers(handler: Handler) -> None:
    """As `drips`, but never gets past the headers."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.fake.is_closing.wait(DRIP_S):
        handler.wfile.write(b".")
        handler.wfile.flush()
    handler.close_connection = True


def huge(kind: str, megabytes: int = 100, *, status: int = 200) -> Behaviour:
    """A body of so many megabytes, sent for as long as the client listens."""

    def behave(handler: Handler) -> None:
        handler.begin(status, kind, content_length=str(megabytes * 2**20))
        handler.close_connection = True
        block = b" " * 2**16
        for _ in range(megabytes * 16):
            handler.wfile.write(block)
            handler.fake.bytes_sent += len(block)

    return behave


def redirects(to: str, status: int = 307) -> Behaviour:
    """Sends the client elsewhere."""
    return sends(b"", status=status, location=to)
