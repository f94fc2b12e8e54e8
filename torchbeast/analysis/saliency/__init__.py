"""Where an agent looks: maps by perturbation, what they are of, and whether they are right."""

from torchbeast.analysis.saliency.maps import (
    Explainer,
    Score,
    Step,
    Subject,
    parse_scores,
    saliency,
)
from torchbeast.analysis.saliency.perturbation import Outputs, Perturbation, SaliencyConfig

__all__ = [
    "Explainer",
    "Outputs",
    "Perturbation",
    "SaliencyConfig",
    "Score",
    "Step",
    "Subject",
    "parse_scores",
    "saliency",
]
