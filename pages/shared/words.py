"""The longer texts of the About page: the method in plain words, the guarantee, the glossary, the licences."""

from __future__ import annotations

METHOD = """
A shop knows what somebody bought, and has a **slate** of candidates to show. A language model can rank them by *writing*
the order out, one number after another: one pass of the model for every token. **Single pass decoding** writes nothing.

1. **One prompt** holds the shopper's history and all candidates. The **backbone**, a language model, reads it once.
2. At each candidate's description a **readout** takes the model's state: what it made of that item.
3. A small **head** turns these states into the **score matrix**: how well candidate *i* would suit position *j*.
4. A **decoder** picks one position for each candidate so that the total score is largest. That is the ranking.

In training, a **teacher** ranks each slate beforehand, and the student learns to put its probability on the teacher's order.
"""
GUARANTEE = """
**Every result is a valid ranking**: each candidate once, none invented, none lost. That sets the method apart from models
that *generate* a ranking as text and can repeat or forget items. It is no news against ordinary rankers: any model that
scores items and sorts them gives a valid ranking too.

**A valid ranking is not a good one.** How good it is depends on the training; the measured quality stands below, with
intervals. The order in which candidates are given can matter, because the model reads them one after another.
"""
GLOSSARY = {
    "Slate": "the candidates shown together, in the order given",
    "Candidate": "one item of a slate",
    "Ranking": "the slate's candidates, best first",
    "Position": "a place in the ranking, the first is the best",
    "Backbone": "the language model that reads the prompt",
    "Adapter (LoRA)": "a small trained change to the backbone's weights",
    "Prefill": "the one pass in which the backbone reads the whole prompt",
    "Readout": "the backbone's state that stands for a candidate",
    "Head": "the small network from readouts to the score matrix",
    "Score matrix": "a number for every candidate at every position",
    "Assignment": "one position for each candidate, none taken twice",
    "Decoder": "the rule that reads a ranking from the score matrix",
    "Sinkhorn": "normalising rows and columns in turn until both sum to 1: a soft assignment",
    "Doubly stochastic": "all rows and all columns sum to 1",
    "Temperature (tau)": "how sharp the soft assignment is; cold is close to a hard one",
    "Residual": "how far Sinkhorn's rows still are from summing to 1",
    "Teacher, student": "the ranker that is imitated, and the model that imitates it",
}
LICENCES = """
This project: Apache-2.0. The embedded backbone SmolLM2-135M-Instruct: Apache-2.0. The sample slates are invented for this
project: people, shops and purchases do not exist. Checkpoints trained on Amazon review data come from a research data set
without a formal licence (cite He and McAuley, 2016); none of its text is part of the project.
"""
CITATION = (
    "Laftchiev et al., SPD: single pass decoding for generative reranking (v1: hLLM), arXiv 2609.01807, September 2026."
)
