"""Fakes and skips that all tests share: a tiny random backbone, a tiny student, slates, and where the real things lie.

Nothing here needs a network, a GPU or the embedded backbone. Tests marked `model`, `browser` or `gpu` are skipped with a
reason where what they need is missing.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["SPD_COMPILE"] = "0"  # apps under test leave their students as they come; `test_quick_pass` compiles one itself
os.environ["HF_HUB_OFFLINE"] = "1"  # before any import of the hub client: a test never goes to the network

import pytest
import torch
from app_machine import TINY_WRITER, make_checkpoints, make_home, save_tiny_teacher
from hypothesis import settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

from spd_core.backbone import Backbone, load_backbone
from spd_core.backbone_files import find_backbone
from spd_core.errors import BackboneError
from spd_core.model import LoraSettings, Student, StudentConfig, attach_lora, build_student
from spd_core.prompts import TEMPLATES
from spd_core.slate import Item, Slate, UserContext
from spd_core.teachers.autoregressive import AutoregressiveTeacher, output_weights_of

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")

ROOT = Path(__file__).resolve().parent.parent
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXTS = (
    "Candidates:\n Lumen Vitamin C Serum 30 ml #1\n Orris Hand Cream with shea butter #2\n",
    "Bought before:\n- Orris Rose Hand Soap\n- Lumen Night Cream for dry skin\nQuery: gentle cleanser\n",
    "shampoo conditioner hair oil lipstick nail polish face mask eye liner sun cream body lotion",
)
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
}


def chromium_path() -> str | None:
    """Chromium's executable: `$CHROMIUM`, else what is on the path; None if there is none."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    reasons = {"model": _missing_backbone(), "browser": _missing_browser(), "gpu": _missing_gpu()}
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing_backbone() -> str | None:
    try:
        find_backbone()
    except BackboneError as error:
        return str(error)
    return None


def _missing_browser() -> str | None:
    return None if chromium_path() else "no Chromium found; install the package `chromium` or set CHROMIUM"


def _missing_gpu() -> str | None:
    return None if torch.cuda.is_available() else "PyTorch sees no CUDA GPU"


def save_tokenizer(folder: Path) -> int:
    """Train a byte-level BPE on a few lines, write it to `folder` and return its vocabulary size."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL_TOKENS[1],
        eos_token=SPECIAL_TOKENS[2],
        pad_token=SPECIAL_TOKENS[2],
        unk_token=SPECIAL_TOKENS[0],
    )
    fast.save_pretrained(folder)
    return tokenizer.get_vocab_size()


@pytest.fixture(scope="session")
def tiny_backbone_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a 2-layer random Llama of width 64 with its tokenizer; read only."""
    folder = tmp_path_factory.mktemp("backbones") / "tiny-llama"
    vocabulary = save_tokenizer(folder)
    torch.manual_seed(0)
    LlamaModel(LlamaConfig(vocab_size=vocabulary, **SHAPE)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_qwen3_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a 2-layer random Qwen3 of width 64 with the same tokenizer; read only."""
    folder = tmp_path_factory.mktemp("backbones") / "tiny-qwen3"
    vocabulary = save_tokenizer(folder)
    torch.manual_seed(0)
    Qwen3Model(Qwen3Config(vocab_size=vocabulary, head_dim=16, **SHAPE)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_backbone(tiny_backbone_dir: Path) -> Backbone:
    """The tiny Llama loaded in float32 on the CPU, uncut; shared, so never changed by a test."""
    return load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def tiny_student(tiny_backbone_dir: Path) -> Student:
    """A student with random head and random adapters that do change the backbone; shared, so never changed by a test."""
    torch.manual_seed(1)
    backbone = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32")
    config = StudentConfig(head="self_attention", head_width=64, positions=50, lora=LoraSettings(rank=2, alpha=4.0))
    student = build_student(backbone, config, TEMPLATES["shop"])
    for name, parameter in student.model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return student.eval()


@pytest.fixture(scope="session")
def tiny_teacher(tiny_backbone_dir: Path) -> AutoregressiveTeacher:
    """A teacher with random adapters that do change the backbone, attached; shared, so never changed by a test."""
    torch.manual_seed(2)
    backbone = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32")
    weights = output_weights_of(backbone, tiny_backbone_dir)
    adapted = dataclasses.replace(backbone, model=attach_lora(backbone.model, TINY_WRITER.lora).eval())
    for name, parameter in adapted.model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return AutoregressiveTeacher(adapted, weights, TEMPLATES["shop"], "tiny-teacher")


@pytest.fixture(scope="session")
def tiny_teacher_dir(tiny_teacher: AutoregressiveTeacher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint folder of the tiny teacher, bound to the backbone that stands for the embedded one; read only."""
    folder = tmp_path_factory.mktemp("teachers")
    return save_tiny_teacher(folder, tiny_teacher)


def new_slate(
    n: int, slate_id: str = "s1", *, history: int | Sequence[str] = 2, titles: Sequence[str] | None = None, **fields: Any
) -> Slate:
    """A slate of `n` candidates c1..cn.

    Args:
        n: number of candidates.
        slate_id: its id.
        history: titles of the history's items, or how many to invent.
        titles: titles of the candidates; invented if None.
        **fields: further fields of `Slate`, e.g. ``label=("c1",)``; `query` goes to the user.
    """
    bought = [f"Orris Soap No {k}" for k in range(history)] if isinstance(history, int) else history
    named = [f"Lumen Cream No {k}" for k in range(1, n + 1)] if titles is None else titles
    user = UserContext(tuple(Item(f"h{k}", title) for k, title in enumerate(bought)), "u1", fields.pop("query", None))
    candidates = tuple(Item(f"c{k}", title) for k, title in zip(range(1, n + 1), named, strict=True))
    return Slate(slate_id, user, candidates, **fields)


@pytest.fixture(scope="session")
def make_slate() -> Callable[..., Slate]:
    """The function `new_slate`."""
    return new_slate


@pytest.fixture(scope="session")
def app_home(tmp_path_factory: pytest.TempPathFactory, tiny_backbone_dir: Path) -> Path:
    """An `$SPD_HOME` in which the tiny backbone stands for the embedded one; read only."""
    return make_home(tmp_path_factory.mktemp("home"), tiny_backbone_dir)


@pytest.fixture(scope="session")
def app_checkpoints(tmp_path_factory: pytest.TempPathFactory, tiny_student: Student) -> Path:
    """A folder with one trained checkpoint on that backbone; read only."""
    return make_checkpoints(tmp_path_factory.mktemp("checkpoints"), tiny_student)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch, app_home: Path, app_checkpoints: Path) -> None:
    """A machine with backbone and checkpoint, as the app's pages find it."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SPD_HOME", str(app_home))
    monkeypatch.setenv("SPD_CHECKPOINTS", str(app_checkpoints))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of Chromium's executable, for tests marked `browser`."""
    path = chromium_path()
    assert path is not None
    return path


@pytest.fixture(scope="session")
def spd_data() -> Path:
    """Folder of the real data sets: `$SPD_DATA`, else `../shared/data` beside the repository; skips where neither exists."""
    places = [os.environ.get("SPD_DATA"), str(ROOT.parent / "shared" / "data")]
    for place in places:
        if place and (Path(place) / "beauty").is_dir():
            return Path(place)
    pytest.skip("the real data sets are not here; set SPD_DATA to their folder")
