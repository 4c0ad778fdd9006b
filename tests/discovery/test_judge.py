"""What is claimed of the generators that passed, and what is withheld."""

from types import SimpleNamespace

import pytest
import torch

from atlasd.discovery import judge
from atlasd.discovery.judge import _in_doubt, judge_generators
from atlasd.discovery.result import Direction
from atlasd.discovery.search import Found
from atlasd.discovery.verdict import Evidence, Gates


def evidence(first_order):
    draws = torch.zeros(4, dtype=torch.float64)
    return Evidence(0.0, draws, 1.0, 1.0, 0.1, None, torch.zeros(1), first_order=first_order)


def dropped(decision):
    return Direction(error=0.1, upper=0.2, lower=0.01, chance=1.0, tolerance=0.05, decision=decision, reason="")


@pytest.mark.parametrize(
    ("left", "others", "doubt"),
    [
        ([True], ["cannot tell"], True),
        ([True, True], ["broken", "cannot tell"], True),
        ([True, False], ["cannot tell"], False),  # one of them was seen at finite size
        ([True], ["broken"], False),
        ([True], [], False),
    ],
)
def test_derivatives_alone_are_not_believed_beside_a_doubt(left, others, doubt):
    assert _in_doubt([evidence(f) for f in left], [dropped(d) for d in others]) is doubt


@pytest.mark.parametrize(("few", "many", "looks", "kept"), [(0.2, 0.03, 2, 1), (0.2, 0.2, 2, 0), (0.03, 0.03, 1, 1)])
def test_what_few_samples_leave_open_is_asked_of_more(monkeypatch, few, many, looks, kept):
    seen = []

    def field_evidence(problem, basis, *rest, samples=48, **options):
        seen.append(samples)
        draws = torch.linspace(0.01, few if samples == 48 else many, 100, dtype=torch.float64)
        return [Evidence(0.02, draws, 1.0, 1.0, 1.0, 1.5, torch.zeros(1)) for _ in basis]

    monkeypatch.setattr(judge, "field_evidence", field_evidence)
    monkeypatch.setattr(judge, "known_inputs", lambda *_: None)
    problem = SimpleNamespace(is_field=True, chart_weights=lambda: torch.ones(1, dtype=torch.float64))
    setup = SimpleNamespace(problem=problem, gates=Gates(skill=1.0, testable=1.0), untrained=None)
    turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
    judged = judge_generators(setup, Found(turn), 0.05, 0)
    assert len(seen) == looks and len(judged.kept) == kept
