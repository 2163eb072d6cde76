"""What the score matrices of a whole file are like, and whether it matters how they are read: figures for a report."""

from spd_core.diagnosis.matrices import RANKERS, REFERENCES, SORTS, TOPS, WORDS, MatrixFigures
from spd_core.diagnosis.report import COMPARED, build_report, does_it_matter, read_report

__all__ = [
    "COMPARED",
    "RANKERS",
    "REFERENCES",
    "SORTS",
    "TOPS",
    "WORDS",
    "MatrixFigures",
    "build_report",
    "does_it_matter",
    "read_report",
]
