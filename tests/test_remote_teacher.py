"""The remote teacher against an endpoint that behaves and one that misbehaves in every way we could think of."""

from __future__ import annotations

import json
import logging
import sys
import threading
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count, islice
from typing import Any

import pytest
from conftest import ROOT, new_slate
from fake_endpoint import (
    DONE,
    Behaviour,
    FakeEndpoint,
    Handler,
    chunked_then_gone,
    completion,
    drips,
    drips_headers,
    event,
    hangs_up,
    huge,
    redirects,
    says,
    sends,
    serving,
    stays_silent,
    streams,
    writes,
)

from spd_core.errors import RemoteError
from spd_core.prompts import TEMPLATES, build_prompt
from spd_core.slate import Slate
from spd_core.teachers.answers import AnswerCancelled, TokenEvent
from spd_core.teachers.remote import LONGEST_WAIT_S, RemoteTeacher, remote_teacher
from spd_core.teachers.remote_client import MOST_BYTES, REQUIREMENT, retry_seconds
from spd_core.teachers.remote_request import chat_messages, new_settings, request_body

pytest.importorskip("openai", reason="the package openai is not installed")

KEY = "sk-test-" + "k" * 32
JSON_ERROR = {"error": {"message": f"no, {KEY} will not do", "code": 7}}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, and no proxy between a test and its fake."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def teacher_at(url: str, **settings: Any) -> RemoteTeacher:
    """A teacher that never sleeps; its waits have no jitter."""
    return replace(remote_teacher(base_url=url, model="tiny", **settings), sleep=lambda seconds: None, jitter=lambda: 0.5)


def error_of(fake: FakeEndpoint, match: str, **settings: Any) -> str:
    """What asking for one slate, watched, raises."""
    with pytest.raises(RemoteError, match=match) as caught:
        teacher_at(fake.url, **settings).answer(new_slate(3), on_token=lambda token: None)
    return str(caught.value)


class TestAsking:
    def test_asks_for_ordinals_about_the_students_prompt(self) -> None:
        slate = new_slate(3, query="hand cream")
        with serving(says("2>3>1")) as fake:
            teacher_at(fake.url).answer(slate)
        (asked,) = fake.requests
        assert asked.path == "/v1/chat/completions"
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert asked.body["model"] == "tiny"
        assert asked.body["temperature"] == 0
        assert asked.body["chat_template_kwargs"] == {"enable_thinking": False}
        assert "stream" not in asked.body
        template = TEMPLATES["shop"]
        assert asked.prompt == build_prompt(slate, template).text + template.answer_header
        instructions = asked.body["messages"][0]["content"]
        assert "all 3 candidates" in instructions
        assert "#1" in instructions
        assert "2>1>3" in instructions

    def test_sends_no_field_that_was_switched_off(self) -> None:
        settings = new_settings(base_url="http://h/v1", model="m", thinking=None, temperature=None)
        body = request_body(new_slate(2), settings, is_streamed=False)
        assert set(body) == {"model", "messages", "max_tokens"}

    def test_the_token_limit_goes_into_the_field_that_the_server_knows(self) -> None:
        settings = new_settings(base_url="http://h/v1", model="m", max_tokens=7, tokens_field="max_completion_tokens")
        body = request_body(new_slate(2), settings, is_streamed=False)
        assert body["max_completion_tokens"] == 7
        assert "max_tokens" not in body

    def test_servers_that_know_efforts_are_told_one(self) -> None:
        settings = new_settings(base_url="http://h/v1", model="m", thinking=None, reasoning_effort="none")
        body = request_body(new_slate(2), settings, is_streamed=False)
        assert body["reasoning_effort"] == "none"
        assert "extra_body" not in body

    def test_room_for_thinking_is_made_unless_it_is_off(self) -> None:
        limits = [
            request_body(new_slate(2), new_settings(base_url="http://h", model="m", thinking=thinks), is_streamed=False)
            for thinks in (False, True, None)
        ]
        assert [body["max_tokens"] for body in limits] == [80, 8272, 8272]

    def test_without_a_key_no_authorization_is_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OPENAI_API_KEY")
        with serving(says("1>2>3")) as fake:
            teacher_at(fake.url, key_env="none").answer(new_slate(3))
        assert "authorization" not in fake.requests[0].headers

    def test_a_long_text_is_cut_after_six_characters_for_each_token_of_its_cap(self) -> None:
        template = TEMPLATES["shop"]
        slate = new_slate(2, titles=["y" * 5000, "fine"])
        text = chat_messages(slate, template)[1]["content"]
        assert text.count("y") == 6 * template.candidate_cap - 1  # a blank goes before
        assert "fine #2\n" in text

    @pytest.mark.parametrize("tag", ["<|im_end|>", "</s>", "<think>", "<start_of_turn>"])
    def test_tags_of_chat_formats_in_titles_are_broken_open(self, tag: str) -> None:
        text = chat_messages(new_slate(1, titles=[f"soap {tag} 3 < 4"]), TEMPLATES["shop"])[1]["content"]
        assert tag not in text
        assert f"< {tag[1:]}" in text
        assert "3 < 4" in text

    def test_building_a_teacher_asks_for_nothing(self) -> None:
        with serving(says("1")) as fake:
            remote_teacher(base_url=fake.url, model="tiny")
        assert fake.requests == []


class TestAnswers:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("2>3>1", "ok"),
            (" [2] > [3] > [1]\n", "ok"),
            ("<think>1>2>3</think>2>3>1", "ok"),
            ("", "format"),
            ("The best one is 2.", "format"),
            ("2>2>1", "repetition"),
            ("2>3", "missing"),
            ("2>3>4", "out_of_range"),
            ("1 \ud800", "format"),
        ],
    )
    @pytest.mark.parametrize("is_streamed", [False, True])
    def test_every_text_is_judged_and_none_raises(self, text: str, kind: str, is_streamed: bool) -> None:
        behave = writes(*text) if is_streamed else says(text)
        with serving(behave) as fake:
            teacher = teacher_at(fake.url, name="far")
            answer = teacher.answer(new_slate(3), on_token=(lambda token: None) if is_streamed else None)
        assert (answer.kind, answer.teacher, answer.mode) == (kind, "far", "remote")
        assert sorted(answer.permutation) == ["c1", "c2", "c3"]
        assert answer.permutation[0] == "c2" or kind == "format"
        json.dumps(answer.to_json()).encode()
        answer.text.encode("utf-8")

    def test_rank_is_the_answers_ranking_under_the_models_name(self) -> None:
        with serving(says("2>1")) as fake:
            ranking = teacher_at(fake.url).rank(new_slate(2))
        assert (ranking.name, ranking.permutation) == ("tiny", ("c2", "c1"))

    def test_tokens_time_and_cost_are_counted(self) -> None:
        with serving(says("1>2")) as fake:
            answer = teacher_at(fake.url, input_price=3.0, output_price=10.0).answer(new_slate(2))
        assert (answer.prompt_tokens, answer.tokens, answer.passes) == (200, 50, 0)
        assert answer.ms > 0
        assert answer.first_token_ms is None
        assert answer.extra == {
            "attempts": 1,
            "finish_reason": "stop",
            "usage": {"prompt_tokens": 200, "completion_tokens": 50, "reasoning_tokens": 30},
            "reasoning_tokens": 30,
            "cost": pytest.approx((200 * 3 + 50 * 10) / 1e6),
        }

    @pytest.mark.parametrize(
        "usage",
        [
            {"prompt_tokens": 5},
            {"prompt_tokens": "5", "completion_tokens": -1},
            [1],
            {"prompt_tokens": True, "completion_tokens": 1},
        ],
    )
    def test_counts_that_make_no_sense_are_no_counts(self, usage: object) -> None:
        with serving(says("1>2", usage=usage)) as fake:
            answer = teacher_at(fake.url, input_price=3.0, output_price=10.0).answer(new_slate(2))
        assert (answer.kind, answer.tokens, answer.extra["usage"], answer.extra["cost"]) == ("ok", 0, None, None)

    def test_no_prices_no_cost(self) -> None:
        with serving(says("1>2")) as fake:
            assert teacher_at(fake.url, input_price=3.0).answer(new_slate(2)).extra["cost"] is None

    @pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
    @pytest.mark.parametrize("is_streamed", [False, True])
    def test_thinking_sent_apart_is_kept_and_not_taken_for_the_answer(self, key: str, is_streamed: bool) -> None:
        stream = streams(
            event({key: "3>2>1"}),
            event({key: " or </think>", "content": None}),
            event({"content": "2>"}),
            event({"content": "1"}, finish="stop"),
            DONE,
        )
        whole = says("2>1", **{key: "3>2>1 or </think>"})
        seen: list[TokenEvent] = []
        with serving(stream if is_streamed else whole) as fake:
            answer = teacher_at(fake.url, thinking=True).answer(new_slate(2), on_token=seen.append if is_streamed else None)
        assert fake.requests[0].body["chat_template_kwargs"] == {"enable_thinking": True}
        assert (answer.kind, answer.permutation) == ("ok", ("c2", "c1"))
        assert answer.text == "<think>3>2>1 or </think>2>1"
        assert [token.order for token in seen] == ([(), (), (1,), (1,)] if is_streamed else [])

    @pytest.mark.parametrize(
        ("content", "fields"),
        [("3>1>", {}), (None, {"reasoning_content": "well, 3 or"}), (None, {}), ("<think>3 or", {}), ("", {})],
    )
    def test_running_into_the_token_limit_is_a_named_problem(self, content: str | None, fields: dict[str, Any]) -> None:
        with serving(says(content, finish="length", **fields)) as fake:
            answer = teacher_at(fake.url).answer(new_slate(3))
        assert answer.is_repaired
        assert answer.problems[-1] == "stopped at the limit of tokens (finish_reason length); raise max_tokens"
        assert answer.extra["finish_reason"] == "length"

    def test_a_whole_ranking_is_ok_though_the_limit_was_reached(self) -> None:
        with serving(says("3>1>2", finish="length")) as fake:
            answer = teacher_at(fake.url).answer(new_slate(3))
        assert (answer.kind, answer.problems) == ("ok", ())


class TestWatching:
    def test_chunks_are_told_as_they_come_with_the_items_named_so_far(self) -> None:
        seen: list[TokenEvent] = []
        with serving(writes("1", "2", ">3", ">", "3>99>1", ".")) as fake:
            answer = teacher_at(fake.url).answer(new_slate(12), on_token=seen.append)
        assert fake.requests[0].body["stream"] is True
        assert fake.requests[0].body["stream_options"] == {"include_usage": True}
        assert [token.index for token in seen] == [0, 1, 2, 3, 4, 5]
        assert [token.text for token in seen] == ["1", "12", "12>3", "12>3>", "12>3>3>99>1", "12>3>3>99>1."]
        assert [token.order for token in seen] == [(), (), (11,), (11, 2), (11, 2), (11, 2, 0)]
        assert answer.token_ms == tuple(token.elapsed_ms for token in seen)
        assert answer.token_ms == tuple(sorted(answer.token_ms))
        assert answer.first_token_ms == answer.token_ms[0]
        assert answer.ms >= answer.token_ms[-1]
        assert (answer.tokens, answer.extra["finish_reason"]) == (50, "stop")

    def test_the_first_chunk_is_told_before_the_server_writes_the_second(self) -> None:
        is_told = threading.Event()

        def behave(handler: Handler) -> None:
            handler.begin(200, "text/event-stream")
            handler.wfile.write(event({"content": "2>"}))
            handler.wfile.write(event({"content": "1" if is_told.wait(20) else "not told"}, finish="stop"))

        with serving(behave) as fake:
            answer = teacher_at(fake.url).answer(new_slate(2), on_token=lambda token: is_told.set())
        assert answer.text == "2>1"

    @pytest.mark.parametrize("is_asked", [True, False])
    def test_a_server_that_does_not_stream_tells_everything_at_once(self, is_asked: bool) -> None:
        seen: list[TokenEvent] = []
        with serving(says("2>1 ")) as fake:
            answer = teacher_at(fake.url, stream=is_asked).answer(new_slate(2), on_token=seen.append)
        assert ("stream" in fake.requests[0].body) == is_asked
        assert [(token.text, token.order) for token in seen] == [("2>1 ", (1, 0))]
        assert answer.kind == "ok"

    def test_events_cut_anywhere_and_lines_of_other_kinds_change_nothing(self) -> None:
        whole = (
            b": ping\r\n\r\nevent: x\r\n"
            + event({"content": "2>"})
            + event({"content": "1 \u00e9"})
            + event({}, finish="stop")
        )
        with serving(streams(*(whole[place : place + 1] for place in range(len(whole))))) as fake:
            assert teacher_at(fake.url).answer(new_slate(2), on_token=lambda token: None).text == "2>1 \u00e9"

    def test_a_broken_stream_is_told_again_from_its_start(self) -> None:
        seen: list[TokenEvent] = []
        with serving(streams(event({"content": "1>2"})), writes("2>", "1")) as fake:
            answer = teacher_at(fake.url).answer(new_slate(2), on_token=seen.append)
        assert [(token.index, token.text) for token in seen] == [(0, "1>2"), (0, "2>"), (1, "2>1")]
        assert (answer.text, answer.extra["attempts"], len(answer.token_ms)) == ("2>1", 2, 2)

    def test_cancelled_between_two_chunks(self) -> None:
        seen: list[TokenEvent] = []
        with (
            serving(drips("text/event-stream", event({"content": "1>"}))) as fake,
            pytest.raises(AnswerCancelled, match="slate 's1': cancelled"),
        ):
            teacher_at(fake.url).answer(new_slate(2), on_token=seen.append, is_cancelled=lambda: len(seen) >= 2)
        assert len(seen) == 2
        assert len(fake.requests) == 1

    @pytest.mark.parametrize("behave", [stays_silent, drips_headers])
    def test_cancelled_while_the_server_says_nothing(self, behave: Behaviour) -> None:
        with serving(behave) as fake, pytest.raises(AnswerCancelled):
            teacher_at(fake.url).answer(new_slate(2), is_cancelled=fake.has_request.is_set)

    def test_cancelled_between_two_tries(self) -> None:
        naps: list[float] = []
        with serving(sends(b"{}", status=503)) as fake:
            teacher = replace(teacher_at(fake.url), sleep=naps.append)
            with pytest.raises(AnswerCancelled):
                teacher.answer(new_slate(2), is_cancelled=lambda: len(naps) >= 2)
        assert len(fake.requests) == 1
        assert max(naps) <= 0.25

    def test_an_error_of_the_watcher_is_its_own(self) -> None:
        with serving(writes("1>2")) as fake, pytest.raises(ZeroDivisionError):
            teacher_at(fake.url).answer(new_slate(2), on_token=lambda token: 1 / 0)


FINISHED = event({"content": "1>2>3"}, finish="stop")
ONCE: dict[str, tuple[Behaviour, str]] = {
    "no key": (
        sends(json.dumps(JSON_ERROR).encode(), status=401),
        "refused the key .status 401.; put a valid one into OPENAI_API_KEY",
    ),
    "forbidden": (sends(b"", status=403), "refused the key .status 403."),
    "no model": (
        sends(json.dumps(JSON_ERROR).encode(), status=404),
        r"no such address or model .status 404: no, \*\*\* will not do.",
    ),
    "unknown field": (
        sends(b'{"detail": "extra fields"}', status=422),
        "refused the request .status 422: extra fields.; if it names",
    ),
    "page": (sends(b"<html>login</html>", status=400, kind="text/html"), "status 400: a web page"),
    "error without body": (sends(b"", status=400), "status 400: no message"),
    "plain text": (sends(b"go\x1b[31m away", status=400, kind="text/plain"), r"status 400: go\?\[31m away"),
    "error list": (sends(b"[1]", status=400), "status 400: .1."),
    "huge error": (huge("text/plain", status=400), "status 400: no message"),
    "redirect": (
        redirects("http://other.example/v1?a=b"),
        "redirects to http://other.example .status 307., which is not followed",
    ),
    "found": (redirects("/v2", 302), "redirects to another address .status 302."),
    "huge": (huge("application/json"), "sent more than 2 MB"),
    "huge stream": (huge("text/event-stream"), "sent more than 2 MB"),
    "compressed": (sends(b"\x1f\x8b", content_encoding="gzip"), "sent a compressed reply"),
    "wrong type": (
        sends(b"hello", kind="text/html; charset=utf-8"),
        "sent content type text/html in place of application/json",
    ),
    "no type": (sends(b"{}", kind=""), "sent no content type"),
    "not JSON": (sends(b"hello \xff " + KEY.encode()), r"sent hello . \*\*\* where JSON was expected"),
    "nothing": (sends(b""), "sent nothing where JSON was expected"),
    "cut JSON": (sends(completion("1>2>3")[:-9]), "where JSON was expected"),
    "deep JSON": (sends(b"[" * 10**6), "where JSON was expected"),
    "JSON of another kind": (sends(b"[1]"), "sent a JSON list in place of an object with choices"),
    "null": (sends(b"null"), "sent a JSON NoneType"),
    "no choices": (sends(b'{"id": 1}'), "sent a reply without choices"),
    "empty choices": (sends(b'{"choices": []}'), "sent a reply without choices"),
    "choices of another kind": (sends(b'{"choices": {"0": 1}}'), "sent a reply without choices"),
    "no message": (sends(b'{"choices": [{"text": "1"}]}'), "sent a choice without a message"),
    "null content": (says(None), "sent no text .finish_reason stop."),
    "filtered": (says(None, finish="content_filter"), "finish_reason content_filter"),
    "content in parts": (sends(b'{"choices": [{"message": {"content": [1]}}]}'), "sent content as a JSON list"),
    "error in a good status": (sends(json.dumps(JSON_ERROR).encode()), r"reports an error: no, \*\*\* will not do"),
    "error in a stream": (
        streams(event({"content": "1"}), b'data: {"error": {"message": "out of memory"}}\n\n'),
        "reports an error: out of memory",
    ),
    "stream without text": (streams(DONE), "sent no text .no finish_reason."),
    "stream of junk": (streams(b"data: hello\n\n"), "sent hello where JSON was expected"),
    "stream of strings": (streams(b'data: "1"\n\n'), "sent a JSON str"),
    "delta of another kind": (streams(b'data: {"choices": [{"delta": [1]}]}\n\n'), "sent a choice without a message"),
}
AGAIN: dict[str, tuple[Behaviour, str]] = {
    "busy": (
        sends(json.dumps(JSON_ERROR).encode(), status=429),
        r"has too much to do .status 429: no, \*\*\* will not do.; lower concurrency",
    ),
    "timeout by the server": (sends(b"", status=408), "failed .status 408: no message."),
    "broken": (sends(b"", status=500), "failed .status 500: no message.; see the server's log"),
    "unavailable": (sends(b"<html>", status=503, kind="text/html"), "failed .status 503: a web page."),
    "hangs up": (hangs_up, "cannot be reached or broke off"),
    "body cut short": (sends(completion("1>2>3")[:-9], content_length="999"), "cannot be reached or broke off"),
    "half a stream": (streams(event({"content": "1>2"})), "closed the stream before the answer was finished"),
    "empty stream": (streams(), "closed the stream before the answer was finished"),
    "stream cut short": (chunked_then_gone(event({"content": "1>2"})), "cannot be reached or broke off"),
}


class TestFailures:
    @pytest.mark.parametrize("name", ONCE)
    def test_what_another_try_cannot_mend_is_asked_once(self, name: str) -> None:
        behave, message = ONCE[name]
        with serving(behave) as fake:
            error = error_of(fake, message)
        assert len(fake.requests) == 1
        assert error.startswith(f"slate 's1': model 'tiny' at {fake.url} ")
        assert "tried" not in error

    @pytest.mark.parametrize("name", AGAIN)
    def test_what_another_try_may_mend_is_asked_three_times(self, name: str) -> None:
        behave, message = AGAIN[name]
        with serving(behave) as fake:
            error = error_of(fake, message)
        assert len(fake.requests) == 3
        assert error.endswith("; tried 3 times")

    @pytest.mark.parametrize("name", AGAIN)
    def test_a_later_good_reply_is_taken(self, name: str) -> None:
        with serving(AGAIN[name][0], says("3>2>1")) as fake:
            answer = teacher_at(fake.url).answer(new_slate(3), on_token=lambda token: None)
        assert (answer.kind, answer.extra["attempts"], len(fake.requests)) == ("ok", 2, 2)

    @pytest.mark.parametrize(
        "behave",
        [
            stays_silent,
            drips_headers,
            drips("text/event-stream", event({"content": "1>"})),
            drips("text/event-stream", b": ping\n\n"),
            drips("application/json", b" "),
        ],
    )
    def test_neither_silence_nor_a_slow_drip_outlasts_the_timeout(self, behave: Behaviour) -> None:
        with serving(behave) as fake:
            error_of(fake, r"has not answered within 0\.2 s; raise timeout_s.*; tried 2 times", timeout_s=0.2, most_tries=2)
        assert len(fake.requests) == 2

    def test_nobody_at_the_address(self) -> None:
        with serving(says("1")) as fake:
            pass
        waits: list[float] = []
        teacher = replace(teacher_at(fake.url), sleep=waits.append)
        with pytest.raises(RemoteError, match=r"cannot be reached or broke off .*refused.*; tried 3 times"):
            teacher.answer(new_slate(3))
        assert sum(waits) == pytest.approx(1 + 2)

    @pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
    def test_most_of_a_hundred_megabytes_is_never_read(self, kind: str) -> None:
        with serving(huge(kind, status=400 if kind == "text/plain" else 200)) as fake:
            error_of(fake, "MB|status 400")
            fake.has_hung_up.wait(20)
        assert fake.bytes_sent < 3 * MOST_BYTES + 10 * 2**20  # what lies in the buffers of both sides is sent but not read

    def test_a_redirect_never_reaches_its_target(self) -> None:
        with serving(says("1>2>3")) as other, serving(redirects(other.url + "/chat/completions")) as fake:
            error_of(fake, "redirects to http://127.0.0.1 ")
        assert other.requests == []


class TestWaiting:
    def waits(self, jitter: float, *script: Behaviour) -> list[float]:
        """Seconds slept in all before each further try."""
        sums: list[float] = []
        with serving(*script) as fake:

            def nap(seconds: float) -> None:
                sums.extend([0.0] * (len(fake.requests) - len(sums)))
                sums[-1] += seconds

            teacher = replace(teacher_at(fake.url), sleep=nap, jitter=lambda: jitter)
            with suppress(RemoteError):
                teacher.answer(new_slate(3))
        return sums

    @pytest.mark.parametrize(("jitter", "expected"), [(0.0, [0.5, 1.0]), (0.5, [1.0, 2.0]), (1.0, [1.5, 3.0])])
    def test_waits_double_and_are_spread_by_half(self, jitter: float, expected: list[float]) -> None:
        assert self.waits(jitter, sends(b"", status=500)) == pytest.approx(expected)

    def test_waits_as_long_as_the_server_asks(self) -> None:
        assert self.waits(0.5, sends(b"", status=429, retry_after="17"), says("1>2>3")) == pytest.approx([17.0])
        assert self.waits(0.5, sends(b"", status=503, retry_after="0"), says("1>2>3")) == pytest.approx([1.0])

    def test_does_not_wait_longer_than_a_minute(self) -> None:
        with serving(sends(b"", status=429, retry_after=str(LONGEST_WAIT_S + 1))) as fake:
            error_of(fake, "it asks to wait 61 s, so run again later")
        assert len(fake.requests) == 1

    @pytest.mark.parametrize("header", [None, "", "soon", "-3", "nan", "inf", "1e9", "Tue, 99 Foo 2026"])
    def test_unreadable_retry_after_asks_for_nothing(self, header: str | None) -> None:
        assert retry_seconds(header) is None

    def test_retry_after_may_be_a_date(self) -> None:
        soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
        assert retry_seconds(soon) == pytest.approx(29, abs=2)
        assert retry_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0


def slate_number(handler: Handler) -> int:
    """Number of the slate that a request is about."""
    return int(handler.asked.prompt.partition("slate number ")[2].split()[0])


def numbered(number: int) -> Slate:
    """A slate that says its number."""
    return new_slate(2, f"s{number}", titles=[f"slate number {number} first", "second"])


class TestManySlates:
    def test_so_many_at_once_and_never_more(self) -> None:
        gate, lock, is_fourth = threading.Barrier(3), threading.Lock(), threading.Event()
        now, most = 0, 0

        def behave(handler: Handler) -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
                if now > 3:
                    is_fourth.set()
            gate.wait(20)  # passes only if three are being asked at once
            is_fourth.wait(0.3)  # a fourth, if there is one, has time to come
            with lock:
                now -= 1
            handler.send(completion("2>1"))

        with serving(behave) as fake:
            answers = list(teacher_at(fake.url, concurrency=3).answers(numbered(k) for k in range(9)))
        assert most == 3
        assert [answer.kind for answer in answers] == ["ok"] * 9

    def test_answers_come_in_input_order_whichever_is_ready_first(self) -> None:
        done = [threading.Event() for _ in range(4)]

        def behave(handler: Handler) -> None:
            number = slate_number(handler)
            assert number == 3 or done[number + 1].wait(20)  # each one waits for its successor
            handler.send(completion("2>1" if number % 2 else "1>2"))
            done[number].set()

        with serving(behave) as fake:
            answers = list(teacher_at(fake.url, concurrency=4).answers(numbered(k) for k in range(4)))
        assert [answer.slate_id for answer in answers] == ["s0", "s1", "s2", "s3"]
        assert [answer.permutation[0] for answer in answers] == ["c1", "c2", "c1", "c2"]

    def test_an_endless_source_is_read_a_little_ahead(self) -> None:
        taken: list[int] = []

        def endless() -> Iterator[Slate]:
            for number in count():
                taken.append(number)
                yield numbered(number)

        with serving(says("2>1")) as fake:
            answers = teacher_at(fake.url, concurrency=2).answers(endless())
            assert [answer.slate_id for answer in islice(answers, 5)] == [f"s{k}" for k in range(5)]
            answers.close()
        assert len(taken) <= 5 + 2 * 2

    def test_a_failure_comes_after_the_answers_before_it_and_ends_the_rest(self) -> None:
        def behave(handler: Handler) -> None:
            number = slate_number(handler)
            if number < 2:
                handler.send(completion("2>1"))
            elif number == 2:
                handler.send(b"", status=400)
            else:
                stays_silent(handler)

        given: list[str] = []
        with serving(behave) as fake, pytest.raises(RemoteError, match=r"slate 's2': .*status 400"):
            given.extend(answer.slate_id for answer in teacher_at(fake.url, concurrency=4).answers(map(numbered, range(50))))
        assert len(fake.requests) <= 2 * 4 + 2

    def test_leaving_early_gives_up_what_is_under_way(self) -> None:
        def behave(handler: Handler) -> None:
            handler.send(completion("2>1")) if slate_number(handler) == 0 else stays_silent(handler)

        with serving(behave) as fake:
            answers = teacher_at(fake.url, concurrency=3).answers(map(numbered, range(50)))
            assert next(answers).slate_id == "s0"
            answers.close()  # would hang for two minutes if the silent ones were waited for

    def test_no_slates_no_requests(self) -> None:
        with serving(says("1")) as fake:
            assert list(teacher_at(fake.url).answers([])) == []
        assert fake.requests == []


def everything_shown(error: BaseException) -> str:
    """All that a log or a crash could show of an error: the traceback with all it hides, reprs and attributes."""
    shown, todo, seen = [], [error], set()
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            shown += [*traceback.format_exception(one), repr(one), repr(vars(one))]
            todo += [other for other in (one.__cause__, one.__context__) if other is not None]
    return "".join(shown)


class TestKey:
    @pytest.mark.parametrize("name", [*ONCE, *AGAIN])
    def test_is_in_no_log_no_error_and_nothing_an_error_holds_on_to(
        self, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        for logger in ("openai", "httpx2", "httpcore2", "spd_core"):
            caplog.set_level(logging.DEBUG, logger)
        with serving((ONCE | AGAIN)[name][0]) as fake, pytest.raises(RemoteError) as caught:
            teacher_at(fake.url).answer(new_slate(3), on_token=lambda token: None)
        assert KEY in fake.requests[0].headers["authorization"]
        assert KEY not in everything_shown(caught.value)
        assert caplog.records
        assert KEY not in "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)

    def test_is_in_no_repr_and_no_json(self) -> None:
        teacher = remote_teacher(base_url="http://localhost:1/v1", model="tiny")
        assert KEY not in repr(teacher) + repr(teacher.endpoint) + teacher.settings.model_dump_json()
        assert "OPENAI_API_KEY" in teacher.settings.model_dump_json()

    def test_an_endpoint_that_repeats_it_does_not_get_it_into_the_answer(self) -> None:
        with serving(says(f"{KEY} 1>2", finish=KEY)) as fake:
            answer = teacher_at(fake.url).answer(new_slate(2))
        assert KEY not in json.dumps(answer.to_json())
        assert answer.text == "*** 1>2"

    def test_a_redirect_that_repeats_it_is_reported_without_it(self) -> None:
        with serving(redirects(f"http://{KEY}.example/v1")) as fake:
            error_of(fake, r"redirects to http://\*\*\*\.example .status 307.")

    def test_a_placeholder_is_not_taken_out_of_texts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
        with serving(says("EMPTY 1")) as fake:
            assert teacher_at(fake.url).answer(new_slate(1)).text == "EMPTY 1"

    def test_comes_from_the_named_variable_without_blanks_around_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VLLM_KEY", f" {KEY[::-1]}\n")
        with serving(says("1")) as fake:
            teacher_at(fake.url, key_env="VLLM_KEY").answer(new_slate(1))
        assert fake.requests[0].headers["authorization"] == f"Bearer {KEY[::-1]}"

    @pytest.mark.parametrize(
        ("value", "message"), [("", "holds no key; set it"), (f"{KEY} \u00e9", "holds blanks or letters beyond ASCII")]
    )
    def test_missing_or_unusable_is_said_at_once_without_showing_it(
        self, value: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
        with pytest.raises(RemoteError, match=f"environment variable OPENAI_API_KEY {message}") as caught:
            remote_teacher(base_url="http://localhost:1/v1", model="tiny")
        assert KEY not in everything_shown(caught.value)

    def test_a_server_that_wants_one_is_named_when_none_is_sent(self) -> None:
        with serving(sends(b"", status=401)) as fake:
            error_of(fake, "wants a key .status 401.; set key_env to the variable that holds one", key_env="none")


class TestSettings:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"base_url": "localhost:8000"}, "base_url: must be an address such as"),
            ({"base_url": "file:///etc/passwd"}, "base_url: must be an address such as"),
            ({"base_url": "http://[::1"}, "base_url: "),
            ({"base_url": f"http://me:{KEY}@host/v1"}, "base_url: must hold no user name, password"),
            ({"base_url": f"http://host/v1?key={KEY}"}, "base_url: must hold no user name, password"),
            ({"key_env": KEY}, "key_env: must be the name of an environment variable in capitals, or none; never the key"),
            ({"model": ""}, "model: string should have at least 1 character"),
            ({"template": "shoes"}, "template: unknown template 'shoes'; choose from films, passages, shop"),
            ({"temperature": -1}, "temperature: input should be greater than or equal to 0"),
            ({"timeout_s": 0}, "timeout_s: "),
            ({"timeout_s": float("nan")}, "timeout_s: "),
            ({"most_tries": 4}, "most_tries: input should be less than or equal to 3"),
            ({"concurrency": 0}, "concurrency: "),
            ({"api_key": KEY}, "api_key: extra inputs are not permitted"),
        ],
    )
    def test_what_is_not_allowed_is_named_and_never_shown(self, wrong: dict[str, Any], message: str) -> None:
        with pytest.raises(RemoteError, match=f"remote teacher: {message}") as caught:
            remote_teacher(**{"base_url": "http://localhost:1/v1", "model": "tiny"} | wrong)
        assert KEY not in everything_shown(caught.value)

    def test_are_frozen(self) -> None:
        settings = new_settings(base_url="http://localhost:1/v1/", model="tiny")
        assert settings.base_url == "http://localhost:1/v1"
        with pytest.raises(ValueError, match="frozen"):
            settings.model = "other"  # type: ignore[misc]

    def test_without_the_package_the_command_that_installs_it_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "openai", None)
        with pytest.raises(RemoteError, match="needs the package openai; install it: python -m pip install 'openai>="):
            remote_teacher(base_url="http://localhost:1/v1", model="tiny")

    def test_message_extra_and_development_requirements_name_the_same_package(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        assert project["optional-dependencies"]["openai"] == [REQUIREMENT]
        assert REQUIREMENT in (ROOT / "requirements-dev.txt").read_text("utf-8").splitlines()
