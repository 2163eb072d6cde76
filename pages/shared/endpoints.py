"""Which addresses a visitor may have this machine call: any if only its own users can open the app, else those listed."""

from __future__ import annotations

import ipaddress
import os

import streamlit as st

from spd_core.errors import SpdError

ENDPOINTS_VARIABLE = "SPD_REMOTE_ENDPOINTS"
"""Base URLs that every visitor may use, separated by commas; where it is set, no other address is called."""
FORWARDED = ("Forwarded", "X-Forwarded-For")
"""Headers of a proxy: behind one, a loopback address says nothing about who visits."""
WHY_OFF = (
    "Off here: this app can be opened from other machines, and any visitor could make this one call any address. "
    f"Whoever runs the app can allow endpoints, e.g. `{ENDPOINTS_VARIABLE}=http://localhost:8000/v1`, and start it again."
)


def allowed_endpoints() -> tuple[str, ...] | None:
    """Base URLs that may be called; None if any may."""
    listed = os.environ.get(ENDPOINTS_VARIABLE)
    if listed is not None:
        return tuple(dict.fromkeys(address.strip().rstrip("/") for address in listed.split(",") if address.strip()))
    is_proxied = any(name in st.context.headers for name in FORWARDED)
    return None if is_loopback(st.get_option("server.address") or "") and not is_proxied else ()


def is_loopback(address: str) -> bool:
    """Whether a server bound to `address` can be reached from its own machine alone."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_endpoint(base_url: str) -> None:
    """Raise unless that address may be called.

    Raises:
        SpdError: it may not.
    """
    allowed = allowed_endpoints()
    if allowed is not None and base_url.rstrip("/") not in allowed:
        raise SpdError(f"base URL {base_url!r} is not one of those that this app may call ({', '.join(allowed) or 'none'})")
