"""What an ablation found: results a cell, the figures that may be shown of them, and which factor works with which.

Knows result files and numbers a slate, not how a cell was trained.
"""

from spd_core.ablation.effects import (
    CONTRASTS,
    Contrast,
    Effect,
    Interaction,
    decoder_effects,
    interactions,
    main_effects,
)
from spd_core.ablation.frames import (
    NOT_RUN,
    Point,
    cube_frame,
    curve_frame,
    measured_values,
    paper_frame,
    point_frame,
    sourced,
)
from spd_core.ablation.results import (
    DECODERS_KEPT,
    FACTORS,
    CellResult,
    CurvePoint,
    Factors,
    SeedRun,
    Source,
    Stage,
    cell_name,
    pack_values,
    read_cell,
    read_cells,
    shared_seeds,
    unpack_values,
    write_cell,
)
from spd_core.ablation.words import decoder_sentence, effect_sentence, interaction_sentence

__all__ = [
    "CONTRASTS",
    "DECODERS_KEPT",
    "FACTORS",
    "NOT_RUN",
    "CellResult",
    "Contrast",
    "CurvePoint",
    "Effect",
    "Factors",
    "Interaction",
    "Point",
    "SeedRun",
    "Source",
    "Stage",
    "cell_name",
    "cube_frame",
    "curve_frame",
    "decoder_effects",
    "decoder_sentence",
    "effect_sentence",
    "interaction_sentence",
    "interactions",
    "main_effects",
    "measured_values",
    "pack_values",
    "paper_frame",
    "point_frame",
    "read_cell",
    "read_cells",
    "shared_seeds",
    "sourced",
    "unpack_values",
    "write_cell",
]
