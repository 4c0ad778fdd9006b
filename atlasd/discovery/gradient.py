"""The paper's search: generators by stochastic gradient descent on the equivariance error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.structure import orthonormal_rows
from atlasd.discovery.gradient_steps import SIMILARITY, Course, GradientSteps
from atlasd.discovery.objective import LOSSES, Charts, Frame, Loss, Window
from atlasd.discovery.prepare import prepare_untrained
from atlasd.discovery.problem import Problem, Proposal
from atlasd.errors import InputError
from atlasd.geometry.resample import Interpolation
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Progress, Silent

# Two runs whose spans differ by less than the sine of about 12 degrees found the same algebra.
_SAME = 0.2


@dataclass(frozen=True, kw_only=True)
class GradientSearch:
    r"""Algorithm 1 of the paper, step 2: k matrices B that make :math:`\exp(\sum_i \eta_i B_i)` a symmetry.

    With an independent Gaussian :math:`\eta` for every sample and chart, Adam lowers

    .. math::
        L(\Phi(g x), g \Phi(x)) - \iota \sum_i \min(\|B_i\|, \beta) + \gamma \sum_{i<j} s(B_i, B_j).

    By default the first term is a weighted mean over charts in standard units, so that growth and weight mean the same
    for 3 charts, for 19, and for any unit of the data, and some aids are on that the paper does not have.
    `GradientSearch.published()` is the paper's own: the sum over charts in the units of the data, and no aids.

    Arguments:
        generators: The number k, or `auto` for the rule of appendix B: the least k that leads to one algebra
            from every start, then raised until the weakest generator drops below `threshold`.
        growth: Reward :math:`\iota` for large generators.
        growth_limit: Size :math:`\beta` beyond which growth is not rewarded; `None` for no limit.
        clip: What the limit is held against: the `norm` of a generator, as in appendix B, or its `entries`, as in
            the published code: a rotation then grows to angles of one radian.
        similarity: `standard` counts shared positions, `cosine` is the plain cosine.
        weight: Weight :math:`\gamma` of the similarity.
        loss: Mean absolute error, mean squared error, or cross-entropy where outputs are probabilities.
        charts: Whether the loss is the `sum` over charts, as the paper's text has it, or the `mean`, which is the sum
            with growth counted once for each chart. On heat, with nineteen charts and the paper's growth factor,
            generators collapse under the sum and grow to rotations under the mean.
        units: Whether matrices and losses are those of `raw` data, as in the paper, or of `standard` units.
        interpolation: How fields are read between their pixels. The paper does not say; a published search uses the
            `bilinear` one that deep-learning libraries offer. It is quicker than a `spline` and blurs more.
        window: Outputs that count: those on the `disc` that need nothing from beyond the patch, or all of the `patch`,
            beyond which fields are zero, as the paper's text has it.
        spread: Standard deviation of :math:`\eta`; 1 in the paper. Larger transformations bend the answer less where
            the data do not fill their orbits: on the paper's heat data the least loss lies about 5 degrees
            off so(2) for rotations by 0.3, 2 degrees for rotations by 1.
        steps: Batches, if `epochs` is `None`.
        epochs: Passes over the samples of the search.
        batch: Samples in a batch.
        samples: The most samples looked at; `None` for all.
        learning_rate: Of Adam.
        anneal: Lets the rate fall to zero along a cosine, so that the answer settles; constant in the paper.
        push: How much more growth is rewarded at first, falling to none over the first 30 % of the steps; 0 in the
            paper. Interpolation error rises steeply below a third of a radian and can hold a generator there.
        average: Share of the last steps whose mean is the answer, which carries less of the noise of the batches; in
            the paper 0, the last step.
        robust: Weighs charts by their signal to noise: those at a wall have poor predictors. Not in the paper.
        tandem: Trains the predictors step by step with the generators, from scratch and on the same batches, as in the
            paper; by default they are fitted before.
        held_out: Looks only at samples that the predictor was not fitted to; the paper looks at all.
        regardless: Searches whatever the data can tell and the predictors can do, as the paper does. The verdict is
            given beside.
        starts: Independent runs for each k of `auto`.
        threshold: Norm below which a generator counts as absent.

    Example:
        >>> GradientSearch(generators=2, similarity="cosine").growth
        0.1
        >>> GradientSearch.published(generators=7).charts
        'sum'
    """

    generators: int | Literal["auto"] = 1
    growth: float = 0.1
    growth_limit: float | None = 1.0
    clip: Literal["norm", "entries"] = "entries"
    similarity: Literal["standard", "cosine"] = "standard"
    weight: float = 0.05
    loss: Loss = "mae"
    charts: Charts = "mean"
    units: Frame = "standard"
    interpolation: Interpolation = "spline"
    window: Window = "disc"
    spread: float = 1.5
    steps: int = 300
    epochs: int | None = None
    batch: int = 16
    samples: int | None = None
    learning_rate: float = 3e-2
    anneal: bool = True
    push: float = 4.0
    average: float = 0.2
    robust: bool = True
    tandem: bool = False
    held_out: bool = True
    regardless: bool = False
    starts: int = 3
    threshold: float = 0.1

    def __post_init__(self) -> None:
        if self.generators != "auto" and (not isinstance(self.generators, int) or self.generators < 1):
            raise InputError(f"`generators` must be 'auto' or a positive integer, got {self.generators!r}.")
        for name, known in (
            ("similarity", tuple(SIMILARITY)), ("loss", LOSSES), ("clip", ("norm", "entries")),
            ("charts", ("mean", "sum")), ("units", ("standard", "raw")), ("interpolation", ("spline", "bilinear")),
            ("window", ("disc", "patch")),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                words = " or ".join([", ".join(map(repr, known[:-1])), repr(known[-1])])
                raise InputError(f"`{name}` must be {words}, got {getattr(self, name)!r}.")
        for name in ("steps", "batch", "starts", "learning_rate", "spread"):
            if getattr(self, name) <= 0:
                raise InputError(f"`{name}` must be positive, got {getattr(self, name)}; leave it at its default.")
        if not 0 <= self.average <= 1:
            raise InputError(f"`average` must lie between 0 and 1, got {self.average}; 0 is the last step.")
        if self.push < 0:
            raise InputError(f"`push` must not be negative, got {self.push}; 0 is none.")

    @classmethod
    def published(cls, **changes: Any) -> GradientSearch:
        """The search as the paper describes it, at its settings for heat.

        The loss is the sum over charts in the units of the data, growth is limited by the norm, the learning rate is
        constant; nothing is pushed, averaged or weighed, and all samples are looked at. Any predictor may be searched,
        and the verdict is given beside. With `tandem=True` predictors learn with the generators.

        Arguments:
            changes: Settings that differ, such as `growth=1.0` and `generators=7` for jets.
        """
        paper = cls(
            clip="norm", charts="sum", units="raw", interpolation="bilinear", spread=1.0, epochs=10, batch=16,
            learning_rate=1e-3, anneal=False, push=0.0, average=0.0, robust=False, held_out=False, regardless=True,
        )  # fmt: skip
        return replace(paper, **changes)

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Proposal:
        """Descends from a random start, or from several to choose the number of generators."""
        if self.generators != "auto":
            return self._found(problem, self._descend(problem, self.generators, seed, progress))
        return self._automatic(problem, seed, progress)

    def find_in_data(
        self, x: Any, y: Any, *, predictor: PredictorSpec, seed: int = 0, progress: Progress | None = None, **data: Any
    ) -> tuple[Problem, Proposal]:
        """Searches in tandem, with no predictor but the one that learns with the generators; no verdict is given.

        Arguments:
            x: Inputs, as for `atlasd.discover`.
            y: Targets.
            predictor: The recipe of the networks.
            data: `atlas` and `action`, as for `atlasd.discover`.

        Returns:
            The problem with the predictors as they are in the end, and what was found, in standard units.
        """
        problem = prepare_untrained(x, y, predictor=predictor, **data)
        found = replace(self, tandem=True).find(problem, seed=seed, progress=progress or Silent())
        return problem.with_function(found.function), found

    def _automatic(self, problem: Problem, seed: int, progress: Progress) -> Proposal:
        """The rule of appendix B for the number of generators."""
        found: Proposal | None = None
        notes: list[str] = []
        for k in range(1, problem.size**2 + 1):
            runs = [
                self._found(problem, self._descend(problem, k, seed if i == 0 else f"{seed}/{i}", progress))
                # Once one k has been found that every start agrees on, a single run tells whether more fit.
                for i in range(self.starts if found is None else 1)
            ]
            weak = any(len(run.basis) < k for run in runs)
            if found is not None and weak:
                notes.append(f"k = {k}: a generator collapsed or repeated the others")
                break
            apart = _apart([LieAlgebra(run.basis) for run in runs])
            if found is None:
                words = "gave one algebra" if apart < _SAME else "disagree"
                degrees = math.degrees(math.asin(min(apart, 1.0)))
                notes.append(f"k = {k}: {self.starts} starts {words}, up to {degrees:.0f} degrees apart")
                progress.say(notes[-1])
            if found is not None or apart < _SAME:
                found = runs[0]
            if weak:
                # The starts agree on fewer than k generators: more would only be copies.
                break
        if found is None:
            nothing = torch.zeros(0, problem.size, problem.size, dtype=torch.float64)
            found = Proposal(nothing, notes=("no number of generators led to one algebra from every start",))
        return replace(found, notes=(*found.notes, *notes))

    def _descend(self, problem: Problem, k: int, seed: object, progress: Progress) -> Course:
        return GradientSteps(self, problem, k, seed).run(progress)

    def _found(self, problem: Problem, run: Course) -> Proposal:
        """Leaves out generators that have collapsed or that repeat another one."""
        rows = run.basis.flatten(1)
        norms = rows.norm(dim=1)
        large = int((norms >= self.threshold).sum())
        notes = [f"{len(rows) - large} of {len(rows)} generators collapsed to zero"] if large < len(rows) else []
        kept = rows[:0]
        for row in rows[norms.argsort(descending=True)[:large]]:
            frame = orthonormal_rows(kept, 0.0)
            if float((row - (frame @ row) @ frame).norm()) > _SAME * float(row.norm()):
                kept = torch.cat([kept, row[None]])
            else:
                notes.append("a generator repeated the others and was left out")
        basis = kept.unflatten(1, run.basis.shape[1:])
        if self.units == "raw":
            basis = problem.units.to_standard(basis)
        return Proposal(basis=basis, curves=run.curves, notes=tuple(notes), fixed=True, function=run.function)


def _apart(algebras: list[LieAlgebra]) -> float:
    """The largest distance between any two algebras: the sine of their largest principal angle."""
    pairs = [(a, b) for i, a in enumerate(algebras) for b in algebras[:i]]
    return max((a.distance(b) for a, b in pairs), default=0.0)
