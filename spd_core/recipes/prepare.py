"""`prepare`: a backbone made ready to load; the embedded one is converted once, a hub model downloaded."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from spd_core.backbone_files import fingerprint_folder, prepare_backbone
from spd_core.recipes import JsonOption


@dataclass(frozen=True)
class Prepared:
    """A backbone that is ready."""

    folder: str
    fingerprint: str
    """Hash of weights and tokenizer, which checkpoints are bound to."""
    seconds: float


def prepare(backbone: str | None = None, *, force: bool = False) -> Prepared:
    """Folder and fingerprint of a backbone that is ready to load; a rerun does nothing.

    Args:
        backbone: hub id or folder; None is the embedded model.
        force: convert the embedded model again.

    Raises:
        BackboneError: it cannot be made ready; the message says what to do.
    """
    begin = time.monotonic()
    folder = prepare_backbone(backbone, force=force)
    return Prepared(str(folder), fingerprint_folder(folder), time.monotonic() - begin)


def command(
    backbone: Annotated[str | None, typer.Option(help="Hub id or folder; default: the embedded model.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Convert the embedded model again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the backbone ready: convert the embedded one or fetch another."""
    ready = prepare(backbone, force=force)
    text = f"backbone ready in {ready.seconds:.1f} s: {ready.folder} (fingerprint {ready.fingerprint})"
    typer.echo(json.dumps(asdict(ready)) if as_json else text)
