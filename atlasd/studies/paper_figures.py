"""The paper's figures, for comparison only: nothing in the library reads them to decide anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIGURES: Mapping[str, Mapping[str, Any]] = {
    "heat/nineteen": {"angle_deg": 1.67, "dimension": 1, "cosets": 2, "samples": 10_000},
    "heat/three": {"angle_deg": 10.4, "dimension": 1, "cosets": 2, "samples": 10_000},
    "heat/sheared": {"angle_deg": 19.5, "dimension": 1, "cosets": 2, "samples": 10_000},
    "liegg-heat": {"smallest_without": 1.137e-6, "smallest_with": "much higher", "generator": "SO(2)"},
    "top-tagging/standard": {"metric_cosine": 0.9996, "generators": 7, "cosets": 2, "shared_pairs": 1},
    "top-tagging/cosine": {"generators": 7, "shared_pairs": 21},
    "d4": {"elements": 8, "starts": 256, "top": 128},
    "top-tagging-downstream": {
        "LorentzNet": {"accuracy": 0.941, "auroc": 0.9862},
        "AtlasGNN": {"accuracy": 0.939, "auroc": 0.9852},
        "LieGNN": {"accuracy": 0.938, "auroc": 0.9849},
        "LorentzNet (w/o)": {"accuracy": 0.935, "auroc": 0.9835},
        "EGNN": {"accuracy": 0.925, "auroc": 0.9799},
    },
    "sphere-mnist": {"angle_deg": 1.46, "dimension": 1, "generator": [[-0.03, -1.0], [1.0, 0.02]], "spheres": 10_000},
    "sphere-mnist-downstream": {"plain": 0.6975, "C4": 0.9381, "spheres": 10_000, "epochs": 100},
    "climate-downstream": {
        "SO(2)": {
            "parameters": 765_945,
            "iou_bg": 0.9107,
            "iou_tc": 0.1744,
            "iou_ar": 0.3839,
            "mean_iou": 0.4896,
            "precision": 0.5983,
            "recall": 0.6274,
        },
        "GL+(2)": {
            "parameters": 111_321,
            "iou_bg": 0.9086,
            "iou_tc": 0.1720,
            "iou_ar": 0.3790,
            "mean_iou": 0.4865,
            "precision": 0.5846,
            "recall": 0.6344,
        },
        "human": {"iou_bg": 0.9137, "iou_tc": 0.2475, "iou_ar": 0.3467, "mean_iou": 0.5026},
    },
    "climate": {"group": "GL+(2)", "dimension": 4, "note": "read off four generators of comparable size"},
    "arctan": {"identity": True, "half_turn": True, "top": 24, "note": "some variability between runs"},
}


def paper_figures(name: str) -> dict[str, Any]:
    """What the paper reports for an experiment, or the distance of its published generators from the truth.

    Example:
        >>> paper_figures("heat/nineteen")["angle_deg"]
        1.67
        >>> paper_figures("something else")
        {}
    """
    return dict(_FIGURES.get(name, {}))
