"""What you run: one file a command, each a function with plain arguments and its command-line front.

Here are the options that several commands share; errors become one line and exit code 2 in `spd_core.__main__`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from spd_core.decoding import DECODERS

CheckpointOption = Annotated[str, typer.Option(help="Id under sample_data/checkpoints, or the folder that train wrote.")]
BackboneOption = Annotated[
    str | None, typer.Option(help="Folder or hub id where the checkpoint's backbone lies; default: as recorded.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DtypeOption = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
DecoderOption = Annotated[str, typer.Option(help=f"How the matrix is read: {', '.join(DECODERS)}.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON line instead of text.")]

__all__ = ["BackboneOption", "CheckpointOption", "DecoderOption", "DeviceOption", "DtypeOption", "JsonOption"]
