"""Which of the stored results of one command to show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import streamlit as st

from pages.shared import errors, loaders, state
from pages.shared.text import shown
from spd_core.errors import SpdError

Report = TypeVar("Report")


def pick(
    key: str, read: Callable[[Path], Report | None], menu_line: Callable[[Report, str], str], *, make: str
) -> tuple[str, Report] | None:
    """File name and content of the chosen result; None where there is none, after saying which command makes one.

    Args:
        key: of the choice in the session.
        read: a file's report, None where the file is of another command; raises `SpdError` where it is damaged, which is
            drawn above the menu.
        menu_line: plain line for the menu, from report and file name.
        make: the command.
    """
    found: dict[str, Report] = {}
    for path in sorted(loaders.RESULTS.glob("*.json")):
        try:
            report = loaders.of_file(path, read)
        except SpdError as error:
            errors.show(error)
            continue
        if report is not None:
            found[path.name] = report
    if not found:
        st.info("No stored result is here. Choose **Measure now** above, or run this command; its result appears here:")
        st.code(make, language=None, wrap_lines=True)
        return None
    chosen = state.choose(key, list(found), next(iter(found)))
    labels = {name: shown(menu_line(report, name), 110) for name, report in found.items()}
    bound = state.bind(key, chosen)
    name = st.selectbox("Stored result", list(found), **bound, format_func=lambda name: labels[name], width=620)
    name = state.remember(key, name or chosen)
    return name, found[name]
