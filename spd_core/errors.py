"""Errors whose message is meant for the person at the screen.

Every message says what was received, what is allowed, where, and the next step. Anything that is not an `SpdError` is a
defect of ours and may show a traceback in the log.
"""


class SpdError(ValueError):
    """Base of all errors shown to users; commands exit with code 2, pages show the text."""


class SlateError(SpdError):
    """A slate, or a line of a slate file, does not follow the contract."""


class PromptError(SpdError):
    """A prompt cannot be built or does not fit the model's context."""


class BackboneError(SpdError):
    """The language model is missing, unsupported or not the one that was asked for."""


class CheckpointError(SpdError):
    """A checkpoint folder is missing, damaged or made for something else."""


class ScoreMatrixError(SpdError):
    """A score matrix holds values from which no ranking can be decoded."""


class TrainingError(SpdError):
    """Training cannot start or had to stop."""


class RemoteError(SpdError):
    """A remote teacher cannot be asked or has not answered as it must; never holds its key."""


def choices(kind: str, received: object, allowed: object) -> str:
    """One line that names the unknown choice and lists the known ones.

    Args:
        kind: what was asked for, e.g. ``"head"``.
        received: the name that is not known.
        allowed: an iterable of the known names; listed in sorted order.
    """
    names = ", ".join(sorted(str(name) for name in allowed))  # type: ignore[attr-defined]
    return f"unknown {kind} {received!r}; choose from {names}"
