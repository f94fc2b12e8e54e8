"""Where an agent looks: maps by perturbation, what they are of, and whether they are right."""

from torchbeast.analysis.saliency.explain import Explainer, SaliencyConfig, Step, saliency
from torchbeast.analysis.saliency.perturbation import Outputs, Perturbation
from torchbeast.analysis.saliency.scores import Score, Subject, parse_scores

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
