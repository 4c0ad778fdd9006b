"""What a discovery returns: the group, the evidence for it, and where it fails."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.group_names import read_group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.digest import FRAMES, check_content, check_digest, digest, read_frames
from atlasd.discovery.frames import Frames
from atlasd.discovery.learned import PredictorSummary
from atlasd.errors import DataError
from atlasd.geometry.polynomial import write_field
from atlasd.runtime.codec import storable
from atlasd.runtime.content import read_json, read_tensors, tensor_digest, write_tensors
from atlasd.runtime.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 2
_READ = (1, 2)
"""Schemas that can be read."""
_MOST_ROWS, _MOST_LETTERS = 8, 120
Decision: TypeAlias = Literal["symmetry", "approximate", "broken", "not testable", "cannot tell"]


@storable()
@dataclass(frozen=True)
class Direction:
    """The verdict on one generator or one coset representative.

    Strengths are ratios of amplitudes: 0 is a symmetry, 1 a map that takes no notice of the transformation. What was
    not measured is NaN.

    Arguments:
        strength: Strength of the breaking on held-out labels.
        sensitivity: Share of a planted breaking that would have been noticed.
        coverage: Share of the transformed samples that lie where data are.
        decision: What follows.
        extent: Largest size |t| at which a generator was judged; `None` for a single element.
    """

    strength: float
    lower: float
    upper: float
    sensitivity: float
    coverage: float
    decision: Decision
    reason: str
    tolerance: float
    extent: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether there is a symmetry, why, and the evidence direction by direction."""

    symmetric: bool
    reason: str
    directions: tuple[Direction, ...] = ()
    cosets: tuple[Direction, ...] = ()
    rejected: tuple[Direction, ...] = ()
    gates: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChartFinding:
    """One chart: its error under the pooled group, and whether it is an outlier chart."""

    center: tuple[float, ...]
    error: float
    outlier: bool
    skill: float = float("nan")
    reason: str = ""

    @property
    def dropped(self) -> bool:
        """Whether it was left out before anything was asked of it."""
        return self.reason.startswith("dropped")


@dataclass(frozen=True, eq=False)
class Discovery:
    """The answer of `atlasd.discover`.

    Arguments:
        group: The largest group found; trivial where there is none.
        verdict: Whether to believe it.
        charts: Findings per chart.
        spectrum: Eigenvalues of all directions, relative to the null level, ascending.
        predictor: What stood in for the unknown map.
        seconds: Wall-clock seconds per stage.
        seed: The seed that gives the same answer again.
        config: The configuration, as plain values.
        curves: Training curves by name.
        chart_generators: Each chart's own best generators, with shape `(K, k, n, n)`, if computed.
        frames: What transformations do to both sides of the map, for the report; `None` if nothing was kept.
        proposed: Generators as the search proposed them, before the verdict, with shape `(k, n, n)`.
        proposed_cosets: Elements as the paper's search proposed them, `(m, n, n)`; `None` for other searches.
        sizes: How large each term of a generator of vectors is on the data with coefficient 1, by monomials: small ones
            are not written. Not stored.
    """

    group: Group
    verdict: Verdict
    charts: tuple[ChartFinding, ...]
    spectrum: tuple[float, ...]
    predictor: PredictorSummary
    seconds: Mapping[str, float]
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    chart_generators: Tensor | None = None
    frames: Frames | None = None
    proposed: Tensor | None = None
    proposed_cosets: Tensor | None = None
    sizes: Tensor | None = None

    @property
    def algebra(self) -> LieAlgebra:
        """The continuous part."""
        return self.group.algebra

    @property
    def cosets(self) -> Tensor:
        """The discrete part: one representative per component, with shape `(m, n, n)`, the identity first."""
        return self.group.cosets

    @property
    def formulas(self) -> list[str]:
        """Generators for vectors as fields, such as `-y d/dx + x d/dy`; empty for fields on grids."""
        if any(c.center for c in self.charts):
            return []
        basis = self.algebra.basis
        n = basis.shape[-1] - int(self.group.affine)
        shift = basis[:, :n, n:] if self.group.affine else basis.new_zeros(len(basis), n, 1)
        fields = torch.cat([shift, basis[:, :n, :n]], dim=-1)
        return [write_field(a, 1, self.config.get("axes"), sizes=self.sizes) for a in fields]

    @property
    def headline(self) -> str:
        """The answer in a few words; never the name of a group where nothing is known."""
        return str(self.group) if self.verdict.symmetric else self.verdict.reason.split(":")[0]

    @property
    def answer(self) -> str:
        """The name of the group, or in a word why none is named: `no symmetry`, `cannot tell`, `not testable`."""
        return self.group.name if self.verdict.symmetric else self.headline.lower()

    def to_dict(self, experiment: str | None = None, **extra: Any) -> dict[str, Any]:
        """The content of `result.json`, schema 2; `extra` adds or replaces top-level entries.

        Under `files` stand the digests of the tensors in files beside it; `extra` may add some.
        """
        from atlasd import __version__

        content: dict[str, Any] = {
            "schema": SCHEMA,
            "experiment": experiment,
            "config": dict(self.config),
            "seed": self.seed,
            "version": __version__,
            "group": {
                "name": self.group.name,
                "algebra": self.group.identification.invariants["algebra"],
                "dimension": self.group.dimension,
                "components": self.group.components,
                "component_group": self.group.component_group,
                **({"affine": True} if self.group.affine else {}),
                **({"noise": self.group.noise} if self.group.noise != 0.03 else {}),
            },
            "generators": self.algebra.basis.tolist(),
            "cosets": self.cosets.tolist(),
            "spectrum": list(self.spectrum),
            "verdict": {
                "symmetric": self.verdict.symmetric,
                "reason": self.verdict.reason,
                "directions": [asdict(d) for d in self.verdict.directions],
                "cosets": [asdict(d) for d in self.verdict.cosets],
                "rejected": [asdict(d) for d in self.verdict.rejected],
                "gates": dict(self.verdict.gates),
            },
            "predictor": self.predictor.summary(),
            "charts": [asdict(c) for c in self.charts],
            "metrics": {},
            "paper": {},
            "seconds": {**self.seconds, "total": sum(self.seconds.values())},
        }
        files = {} if self.frames is None else {FRAMES: tensor_digest(self.frames.tensors())}
        content.update(extra)
        content["files"] = {**files, **extra.get("files", {})}
        content = _plain(content)
        content["digest"] = digest(content, self._tensors())
        return content

    def _tensors(self) -> dict[str, Tensor]:
        """The content of `tensors.safetensors`."""
        tensors = {"generators": self.algebra.basis, "cosets": self.cosets}
        tensors["spectrum"] = torch.tensor(self.spectrum, dtype=torch.float64)
        for name in ("chart_generators", "proposed", "proposed_cosets"):
            if (value := getattr(self, name)) is not None:
                tensors[name] = value
        tensors.update({f"curve.{k}": torch.tensor(v, dtype=torch.float64) for k, v in self.curves.items()})
        return {k: v.detach().clone().contiguous() for k, v in tensors.items()}

    def save(self, directory: str | Path, experiment: str | None = None, **extra: Any) -> Path:
        """Writes `result.json`, `tensors.safetensors` and, if there are any, `frames.safetensors`, each atomically."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_tensors(directory / "tensors.safetensors", self._tensors())
        if self.frames is None:
            (directory / FRAMES).unlink(missing_ok=True)
        else:
            write_tensors(directory / FRAMES, self.frames.tensors())
        text = json.dumps(self.to_dict(experiment, **extra), indent=2, allow_nan=False) + "\n"
        write_atomically(directory / "result.json", lambda path: path.write_text(text))
        return directory

    def report(self, path: str | Path) -> Path:
        """Writes the report as one self-contained HTML page."""
        from atlasd.report.html import write_report  # the report draws; discovery must not need it

        return write_report(self, Path(path))

    def network(self, x: Any, y: Any, **options: Any) -> Any:
        """A network that commutes with the group, for these inputs and targets; options as in `atlasd.nn.network`."""
        from atlasd.nn.build import network

        return network(self, x, y, **options)

    def plot(self, directory: str | Path | None = None) -> dict[str, Figure]:
        """The figures as matplotlib objects, by name; with a directory, also written there as PNG and SVG."""
        from atlasd.report.figures import draw_discovery, write_figures

        if directory is not None:
            write_figures(self, Path(directory))
        return draw_discovery(self)

    def _repr_html_(self) -> str:
        from atlasd.report.sentences import notebook_html

        return notebook_html(self)

    def __str__(self) -> str:
        """The group, the verdict and one line for each generator, coset and other direction that was judged."""
        rows = [("", "breaking", "at most", "decision", "why")]
        # The identity is no finding.
        groups = (("generator", self.verdict.directions), ("coset", self.verdict.cosets[1:]))
        for kind, found in (*groups, ("other", self.verdict.rejected)):
            for k, d in enumerate(found[:_MOST_ROWS]):
                rows.append((f"{kind} {k + 1}", percent(d.strength), percent(min(d.upper, 1.0)), d.decision, d.reason))
            if len(found) > _MOST_ROWS:
                rows.append((f"{kind} ...", "", "", "", f"and {len(found) - _MOST_ROWS} more"))
        lines = [self.headline, self.verdict.reason]
        if len(rows) > 1:
            width = [max(len(row[c]) for row in rows) for c in range(4)]
            shape = "  {:<{}}  {:>{}}  {:>{}}  {:<{}}  {}"
            pairs = [(*(v for c in range(4) for v in (row[c], width[c])), row[4]) for row in rows]
            lines += [shape.format(*pair).rstrip() for pair in pairs]
        written = [f"  generator {k + 1}: {f}" for k, f in enumerate(self.formulas[:_MOST_ROWS])]
        lines += [line for line in written if len(line) < _MOST_LETTERS]
        if len(self.charts) > 1:
            apart = [str(k) for k, c in enumerate(self.charts) if c.outlier and not c.dropped]
            dropped = sum(c.dropped for c in self.charts)
            more = f"; {dropped} more dropped" if dropped else ""
            lines.append(f"  {len(self.charts) - dropped} charts, outliers: {', '.join(apart) or 'none'}{more}")
        if self.proposed_cosets is not None and self.proposed is not None:
            proposal = f"{len(self.proposed)} generator(s) and {len(self.proposed_cosets)} coset(s)"
            lines.append(f"  before the verdict, the search proposed {proposal}")
        p = self.predictor
        lines.append(f"  {p.kind}, skill {p.skill:.2f} on {p.samples} samples; {sum(self.seconds.values()):.1f} s")
        return "\n".join(lines)


def percent(strength: float) -> str:
    """A strength for people; nothing for what was not measured.

    Example:
        >>> percent(0.0312), percent(math.nan)
        ('3.1 %', '')
    """
    return "" if math.isnan(strength) else f"{100 * strength:.1f} %"


def _plain(value: Any) -> Any:
    """Plain JSON values: tensors to lists, numbers that JSON lacks to `None`."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)


def load(directory: str | Path) -> Discovery:
    """Reads a discovery back from the directory it was saved in."""
    from atlasd import __version__

    directory = Path(directory)
    try:
        content = read_json(directory / "result.json")
        tensors = read_tensors(directory / "tensors.safetensors")
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(
            f"`{directory}` must be a run directory with result.json and tensors.safetensors: {error}"
        ) from error
    if not isinstance(content, dict) or content.get("schema") not in _READ:
        found = content.get("schema") if isinstance(content, dict) else None
        raise DataError(f"`{directory}/result.json` must have schema 1 or {SCHEMA}, got {found}; run it again.")
    try:
        check_content(content)
        found = _from_content(content, tensors)
        broken = check_digest(content, tensors, __version__)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"`{directory}/result.json` is not a result of atlasd: {error!r}; run it again.") from error
    if broken is not None:
        raise DataError(f"`{directory}/result.json` must be as atlasd wrote it: {broken}.")
    return replace(found, frames=read_frames(directory, content))


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _chart_strength(error: float | None, schema: int) -> float:
    """The strength of the breaking on a chart; schema 1 had its square."""
    value = _number(error)
    return math.sqrt(value) if schema == 1 and value >= 0 else value


def _direction(entry: Mapping[str, Any]) -> Direction:
    if "strength" not in entry:  # schema 1 had squares of amplitudes, and knew no sensitivity
        old = {k: _number(entry.get(k)) for k in ("error", "lower", "upper", "tolerance")}
        roots = {k: math.sqrt(v) if v >= 0 else math.nan for k, v in old.items()}
        numbers = {"strength": roots["error"], "lower": roots["lower"], "upper": roots["upper"]}
        numbers |= {"sensitivity": math.nan, "coverage": math.nan, "tolerance": roots["tolerance"]}
    else:
        names = ("strength", "lower", "upper", "sensitivity", "coverage", "tolerance")
        numbers = {k: _number(entry.get(k)) for k in names}
    return Direction(**numbers, decision=entry["decision"], reason=entry["reason"], extent=entry.get("extent"))


def _from_content(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Discovery:
    verdict = content["verdict"]
    predictor = content["predictor"]
    for name in ("generators", "cosets"):
        if content[name] != tensors[name].tolist():
            raise ValueError(f"{name} differ from those of tensors.safetensors")
    return Discovery(
        group=read_group(content["group"], tensors["generators"], tensors["cosets"]),
        verdict=Verdict(
            symmetric=bool(verdict["symmetric"]),
            reason=verdict["reason"],
            directions=tuple(_direction(d) for d in verdict["directions"]),
            cosets=tuple(_direction(d) for d in verdict.get("cosets", ())),
            rejected=tuple(_direction(d) for d in verdict.get("rejected", ())),
            gates=verdict.get("gates", {}),
        ),
        charts=tuple(
            ChartFinding(
                tuple(c["center"]),
                _chart_strength(c["error"], content["schema"]),
                bool(c["outlier"]),
                _number(c.get("skill")),
                c.get("reason", ""),
            )
            for c in content["charts"]
        ),
        spectrum=tuple(_number(v) for v in content["spectrum"]),
        predictor=PredictorSummary(
            predictor["kind"],
            _number(predictor["skill"]),
            int(predictor["samples"]),
            float(predictor["seconds"]),
        ),
        seconds={k: float(v) for k, v in content["seconds"].items() if k != "total"},
        seed=int(content["seed"]),
        config=content["config"],
        curves={k[6:]: tuple(v.tolist()) for k, v in sorted(tensors.items()) if k.startswith("curve.")},
        chart_generators=tensors.get("chart_generators"),
        proposed=tensors.get("proposed"),
        proposed_cosets=tensors.get("proposed_cosets"),
    )
