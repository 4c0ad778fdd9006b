"""A predictor of your own: anything with `fit` that returns a differentiable function and its skill.

Run: python examples/04_own_predictor.py
"""

from dataclasses import dataclass

import torch

import atlasd as ad
from atlasd.prediction.predictor import FittedPredictor


@dataclass(frozen=True)
class Quadratic:
    """Least squares on all products of two coordinates."""

    ridge: float = 1e-6

    def fit(self, samples, train, held_out, *, seed, progress):
        x, y = samples.inputs(train), samples.targets(train)  # (B, 1, n) and (B, 1, outputs)
        f = features(x).flatten(0, 1).double()
        weights = torch.linalg.solve(f.mT @ f + self.ridge * torch.eye(f.shape[1]), f.mT @ y.flatten(0, 1).double())

        def function(z):
            return (features(z).double() @ weights).to(z.dtype)

        # Skill: the share of the error of the best constant that is removed, on data not fitted to.
        x, y = samples.inputs(held_out), samples.targets(held_out)
        left = (function(x) - y).square().mean() / (y - y.mean(0)).square().mean()
        skill = 1 - float(left)
        return FittedPredictor(
            function=function,
            kind="quadratic",
            skill=skill,
            chart_skill=torch.tensor([skill], dtype=torch.float64),
            reach=0.0,
            samples=len(train),
        )


def features(x):
    """1, x_i and x_i x_j."""
    products = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    return torch.cat([torch.ones_like(x[..., :1]), x, products], dim=-1)


def main(samples=600):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 2, generator=generator)
    noise = 0.05 * torch.randn(samples, generator=generator)
    y = x[:, 0] * x[:, 1] + noise  # kept by squeezing one axis and stretching the other

    found = ad.discover(x, y, predictor=Quadratic(), progress=False)
    print(found)
    print(found.algebra.basis)
    return found


if __name__ == "__main__":
    main()
