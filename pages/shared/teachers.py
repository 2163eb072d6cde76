"""Which teacher races, and getting it ready: a checkpoint, a remote endpoint, or a ranking that is there already."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Literal

import streamlit as st

from pages.shared import endpoints, frame, loaders, state
from pages.shared.loaders import Loaded
from pages.shared.race import Entry, Race
from pages.shared.text import escaped, message, shown
from spd_core.decoding import DECODERS
from spd_core.latency import describe_machine
from spd_core.slate import Ranking, Slate
from spd_core.teachers.answers import WritingTeacher
from spd_core.teachers.input_order import InputOrder

Kind = Literal["checkpoint", "remote", "stored", "input order"]
STORED, REMOTE, INPUT_ORDER = "stored", "remote", "input-order"
MODE_TITLES = {"constrained": "constrained: only unused numbers", "free": "free: whatever it says"}
KEY_VARIABLE, ADDRESS_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
NO_KEY = "none"
"""What a remote teacher takes for the variable of its key if it shall send none."""
TRAIN_COMMAND = "python -m spd_core train --role teacher"


@dataclass(frozen=True)
class Choice:
    """The teacher that a visitor has picked."""

    option: str
    """Name in the address."""
    kind: Kind
    checkpoint_id: str = ""
    mode: str = ""
    base_url: str = ""
    model: str = ""

    @property
    def key(self) -> str:
        """Tells one choice from any other."""
        return "\0".join((self.option, self.base_url, self.model))

    @property
    def writes(self) -> bool:
        """Whether there is something to race against."""
        return self.kind in ("checkpoint", "remote")

    @property
    def is_ready(self) -> bool:
        """Whether everything is known that a race needs."""
        return self.kind != "remote" or bool(self.base_url and self.model)


def pick_teacher(slate: Slate) -> Choice:
    """The chosen teacher, with what is amiss with the others told below."""
    infos = loaders.teachers()
    choices = {
        f"{mode}-{info.checkpoint_id}": Choice(f"{mode}-{info.checkpoint_id}", "checkpoint", info.checkpoint_id, mode)
        for info in infos
        if info.config is not None
        for mode in MODE_TITLES
    }
    if slate.teacher is not None:
        choices[STORED] = Choice(STORED, "stored")
    choices |= {REMOTE: Choice(REMOTE, "remote"), INPUT_ORDER: Choice(INPUT_ORDER, "input order")}
    default = next(name for name in choices if name != REMOTE)
    chosen = state.choose("teacher", list(choices), default)
    value = st.selectbox(
        "Teacher",
        list(choices),
        **state.bind("teacher", chosen),
        format_func=lambda name: _option_title(choices[name], slate),
        help="A model that writes its ranking number by number, or a ranking that is there already.",
        width=480,
    )
    frame.show_notes("teacher")
    choice = choices[state.remember("teacher", value or chosen)]
    for info in infos:
        if info.error is not None:
            st.warning(message(info.error), icon=":material/warning:")
    if not any(info.config is not None for info in infos):
        st.info(
            f"No trained teacher is here. `{TRAIN_COMMAND}` makes one; until then a remote model, or the order given.",
            icon=":material/school:",
        )
    return _ask_endpoint(choice) if choice.kind == "remote" else choice


def kinship(loaded: Loaded, choice: Choice) -> str:
    """Markdown: whom the student learned from, and whether that is the chosen teacher; empty for an untrained one."""
    info = loaded.info
    if info is None or info.config is None or info.config.training is None:
        return ""
    learned = info.config.training.teacher
    told = f"{escaped(info.checkpoint_id, 60)} learned from {escaped(learned, 80)}"
    if choice.kind != "checkpoint":
        return f"{told}."
    if choice.checkpoint_id in learned.split(", "):
        return f"{told}: from this teacher's own rankings."
    return f"{told}, not from this teacher: agreement here is no measure of how well it was distilled."


def _option_title(choice: Choice, slate: Slate) -> str:
    if choice.kind == "checkpoint":
        return f"{shown(choice.checkpoint_id, 60)} ({MODE_TITLES[choice.mode]})"
    if choice.kind == "stored" and slate.teacher is not None:
        return f"{shown(slate.teacher.name, 60)} (stored with the slate)"
    if choice.kind == "remote":
        return f"Remote endpoint ({'off here' if endpoints.allowed_endpoints() == () else 'asks over the network'})"
    return "The order given (no model)"


def _ask_endpoint(choice: Choice) -> Choice:
    allowed = endpoints.allowed_endpoints()
    if allowed == ():
        return choice
    with st.expander("Remote endpoint", expanded=True, icon=":material/cloud:"):
        left, right = st.columns(2, gap="small")
        default = state.get("base url", os.environ.get(ADDRESS_VARIABLE, ""))
        if allowed:
            bound = state.bind("base url", default if default in allowed else allowed[0])
            base_url = left.selectbox("Base URL", allowed, **bound, format_func=lambda address: shown(address, 80))
        else:
            bound = state.bind("base url", default)
            base_url = left.text_input("Base URL", **bound, placeholder="http://localhost:8000/v1")
        model = right.text_input("Model", **state.bind("model", state.get("model", "")), placeholder="Qwen/Qwen3-32B")
        st.caption(
            "Any OpenAI-compatible endpoint: vLLM, Ollama, hosted. Nothing is sent before **Race** is pressed; then history "
            f"and candidates of this slate are. The key in {KEY_VARIABLE} goes only to the address in {ADDRESS_VARIABLE}."
        )
    return Choice(choice.option, choice.kind, base_url=(base_url or "").strip(), model=(model or "").strip())


def key_variable(base_url: str) -> str:
    """Name of the environment variable whose key may be sent to that address, or none.

    A visitor chooses the address but the key is the host's: it is for the one address that the host has named beside it.
    """
    trusted = os.environ.get(ADDRESS_VARIABLE, "").rstrip("/")
    is_trusted = bool(trusted) and base_url.rstrip("/") == trusted and KEY_VARIABLE in os.environ
    return KEY_VARIABLE if is_trusted else NO_KEY


def ready_teacher(choice: Choice) -> WritingTeacher:
    """The teacher of a choice that writes; loads a model or prepares an endpoint, and sends nothing.

    Raises:
        SpdError: the checkpoint is broken, a setting is wrong, an address may not be called, or a package is missing.
    """
    if choice.kind == "remote":
        endpoints.check_endpoint(choice.base_url)
        key_env = key_variable(choice.base_url)
        return open_remote(base_url=choice.base_url, model=choice.model, key_env=key_env)
    return loaders.load_teacher(choice.checkpoint_id, choice.mode)


def open_remote(**settings: str) -> WritingTeacher:
    """A remote teacher; imported when it is asked for, as most visitors never do."""
    from spd_core.teachers.remote import remote_teacher

    return remote_teacher(**settings)


def start_race(loaded: Loaded, slate: Slate, choice: Choice) -> Race:
    """A race that has joined the line.

    Raises:
        SpdError: as `ready_teacher`.
    """
    rank = partial(loaders.race_now, loaded, slate, chosen_decoder())
    machine = describe_machine(loaded.student)
    entry = Entry(slate, rank, ready_teacher(choice), machine, is_local=choice.kind == "checkpoint")
    return Race(entry, loaders.race_line())


def chosen_decoder() -> str:
    """Decoder that the visitor has chosen on another page."""
    return state.choose("decoder", list(DECODERS), "hungarian")


def ready_ranking(choice: Choice, slate: Slate) -> Ranking:
    """The ranking of a choice that writes nothing."""
    return slate.teacher if choice.kind == "stored" and slate.teacher is not None else InputOrder().rank(slate)


def promise(choice: Choice) -> str:
    """What pressing Race will do, as markdown."""
    if choice.kind == "remote" and endpoints.allowed_endpoints() == ():
        return endpoints.WHY_OFF
    if not choice.is_ready:
        return "Fill in base URL and model of the endpoint, then press **Race**."
    return (
        "Nothing has run yet. Press **Race**: the student ranks this slate in one pass, then the teacher writes its ranking "
        "number by number while you watch. They run one after the other, so that neither slows the other down."
    )


def title_of(choice: Choice, slate: Slate) -> str:
    """Markdown name of the teacher for headings."""
    if choice.kind == "checkpoint":
        return f"{escaped(choice.checkpoint_id, 60)}, {choice.mode}"
    if choice.kind == "remote":
        return f"{escaped(choice.model, 60)}, remote"
    return escaped(ready_ranking(choice, slate).name, 60) + (", stored" if choice.kind == "stored" else "")
