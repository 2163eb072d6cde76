"""What a language model would say next, asked only of the tokens that matter: one pass, no cache, nothing written.

It knows encoded prompts and logits, and nothing of rankings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spd_core.backbone import Backbone, prefill
from spd_core.errors import SpdError
from spd_core.teachers.autoregressive import text_ids
from spd_core.tokenization import EncodedPrompt, collate_prompts


def with_cue(prompt: EncodedPrompt, cue: Sequence[int]) -> EncodedPrompt:
    """The same prompt with further tokens behind it, after which the model is asked for the next one."""
    return dataclasses.replace(prompt, input_ids=[*prompt.input_ids, *cue])


def single_tokens(backbone: Backbone, words: Sequence[str]) -> list[int]:
    """Token id of each word, each encoded alone.

    Args:
        backbone: whose tokenizer it is.
        words: any texts.

    Raises:
        SpdError: a word takes several tokens, or none, or two words are the same token.
    """
    ids = [text_ids(backbone.tokenizer, word) for word in words]
    for word, tokens in zip(words, ids, strict=True):
        if len(tokens) != 1:
            raise SpdError(
                f"backbone {backbone.backbone_id!r} writes {word!r} in {len(tokens)} tokens; a ranker that reads one next "
                f"token needs a word for it, so choose another backbone"
            )
    seen: dict[int, str] = {}
    for word, (token,) in zip(words, ids, strict=True):
        if token in seen:
            raise SpdError(
                f"backbone {backbone.backbone_id!r} writes {seen[token]!r} and {word!r} as the same token; "
                f"choose another backbone"
            )
        seen[token] = word
    return [token for (token,) in ids]


@torch.inference_mode()
def next_token_logits(
    backbone: Backbone, output_weights: Tensor, prompts: Sequence[EncodedPrompt], token_ids: Sequence[int]
) -> NDArray[np.float64]:
    """Logits of the given tokens as the next one of each prompt.

    The product with the language head is made in float32 whatever the backbone computes in: in bfloat16 the logits of two
    letters would often be the same number.

    Args:
        backbone: at full depth, in eval mode.
        output_weights: (V, D) of the language head.
        prompts: B >= 1 prompts, each ending where the next token is asked for.
        token_ids: k ids.

    Returns:
        (B, k) finite numbers, one row a prompt.

    Raises:
        PromptError: a prompt is longer than the model's context; the message gives both numbers.
        SpdError: a logit is not finite.
    """
    batch = collate_prompts(prompts, pad_id=backbone.tokenizer.pad_token_id, max_tokens=backbone.max_tokens)
    moved = batch.to(backbone.device)
    hidden = prefill(backbone.model, moved)  # (B, T, D)
    last = moved.attention_mask.sum(dim=1) - 1  # (B,): padding is on the right
    states = hidden[torch.arange(len(prompts), device=hidden.device), last].float()  # (B, D)
    weights = output_weights[torch.tensor(list(token_ids), device=output_weights.device)].float()  # (k, D)
    logits = (states @ weights.T).cpu().numpy().astype(np.float64)
    if not np.isfinite(logits).all():
        row = int(np.flatnonzero(~np.isfinite(logits).all(axis=1))[0])
        raise SpdError(
            f"slate {prompts[row].slate_id!r}: the model's next-token logits are not finite in {backbone.dtype}; "
            f"try --dtype float32"
        )
    return logits
