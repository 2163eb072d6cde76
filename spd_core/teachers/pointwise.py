"""Ranking by one yes-or-no question a candidate: what users of cross-encoders do, here with the backbone's own language head.

N short prompts a slate instead of one long one, so that no candidate sees another and their order cannot matter. The user's
history is read N times. As it comes, a small model says yes or no by habit, so that the ranking is near chance; it is called
`zero-shot`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spd_core.backbone import Backbone
from spd_core.errors import SpdError
from spd_core.prompts import Template, build_prompt
from spd_core.slate import Ranking, Slate
from spd_core.teachers.autoregressive import AutoregressiveTeacher, text_ids
from spd_core.teachers.base import rank_by_scores
from spd_core.teachers.next_token import next_token_logits, single_tokens, with_cue
from spd_core.tokenization import EncodedPrompt, encode_prompt

QUESTION = "Is this the best choice? Answer yes or no:"
ANSWERS = ((" yes", " no"), (" Yes", " No"), ("yes", "no"), ("Yes", "No"))
"""Ways to write the two answers; the first one of which both are single tokens is used."""
BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}
"""Most tokens a pass by device, for the sake of memory; the prompts of a slate are of like length, so little is padding."""


@dataclass(frozen=True)
class PointwiseRanker:
    """N prompts of one candidate each; score = logit(yes) - logit(no) of the next token.

    Source: Nogueira, Jiang, Pradeep & Lin, Document Ranking with a Pretrained Sequence-to-Sequence Model, 2020, for the
    two-token score; without its training.
    """

    backbone: Backbone
    """At full depth; adapters, if any, merged or attached."""
    output_weights: Tensor = field(repr=False)
    """(V, D) of the language head."""
    template: Template
    """Wording of the students; its candidates' header and labels are not used."""
    name: str = "pointwise"

    @classmethod
    def of(cls, model: AutoregressiveTeacher) -> Self:
        """Ranker that asks the language model of a teacher; of the zero-shot one it is the backbone as it came."""
        return cls(model.backbone, model.output_weights, model.template, f"pointwise:{model.name}")

    def scores(self, slate: Slate, *, batch_tokens: int | None = None) -> NDArray[np.float64]:
        """(N,) differences of logits, yes less no, in input order.

        Args:
            slate: any number of candidates.
            batch_tokens: most tokens a pass, padding included (a longer prompt goes alone); None chooses by device.

        Raises:
            PromptError: a prompt is longer than the model's context.
            SpdError: the backbone has no single tokens for yes and no.
        """
        answers = answer_tokens(self.backbone)
        prompts = self.encode(slate)
        limit = batch_tokens or BATCH_TOKENS.get(self.backbone.device.type, BATCH_TOKENS["cpu"])
        size = max(1, limit // max(len(prompt.input_ids) for prompt in prompts))
        batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        logits = [next_token_logits(self.backbone, self.output_weights, batch, answers) for batch in batches]
        yes, no = np.concatenate(logits).T
        return np.asarray(yes - no)

    def rank(self, slate: Slate) -> Ranking:
        """Ranking by `scores`; equal scores keep the input order. Raises as `scores` does."""
        return rank_by_scores(self.scores(slate), slate, self.name)

    def encode(self, slate: Slate) -> list[EncodedPrompt]:
        """Token ids of the N prompts, each with the question behind it."""
        template = pointwise_template(self.template)
        tokenizer = self.backbone.tokenizer
        question = text_ids(tokenizer, template.answer_header)
        alone = [
            dataclasses.replace(slate, candidates=(candidate,), label=None, grades=None, teacher=None)
            for candidate in slate.candidates
        ]
        return [with_cue(encode_prompt(build_prompt(one, template), tokenizer), question) for one in alone]


def pointwise_template(template: Template) -> Template:
    """The wording for one candidate: the same user context, then the candidate, then the question."""
    return dataclasses.replace(
        template,
        name=f"{template.name}, pointwise",
        candidates_header="Candidate:\n",
        candidate_before="",
        candidate_after="\n",
        answer_header=QUESTION,
    )


def answer_tokens(backbone: Backbone) -> list[int]:
    """Ids of the tokens for yes and no.

    Raises:
        SpdError: the backbone has no single tokens for them.
    """
    problem: SpdError | None = None
    for words in ANSWERS:
        try:
            return single_tokens(backbone, words)
        except SpdError as error:
            problem = problem or error
    raise SpdError(f"no way to write yes and no is one token each: {problem}")
