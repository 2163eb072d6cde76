"""A word before times are measured on a machine that has other work to do."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger(__name__)

BUSY_SHARE = 0.5
"""Share of the cores that was in use over the last minute from which on times are doubtful."""


def warn_of_other_work() -> None:
    """Tell if half of the cores were busy over the last minute; silent where the system does not say (Windows)."""
    if not hasattr(os, "getloadavg"):
        return
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load >= BUSY_SHARE * cores:
        logger.warning(
            "%.1f of %d cores were busy over the last minute; other work makes times longer, so measure on an idle machine",
            load,
            cores,
        )
