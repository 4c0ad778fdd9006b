"""Your own data: from a file to a discovery, with a default for everything that is not given."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from atlasd.data.arrays import Cleaning, Mixing, OwnData, find_pairs, read_own, scaled
from atlasd.data.files import DataFile, open_data
from atlasd.data.samples import chart_blocks
from atlasd.data.variables import Choice, choose
from atlasd.discovery.discover import discover
from atlasd.discovery.flow import discover_flow
from atlasd.discovery.representations import discover_representation
from atlasd.discovery.result import Discovery
from atlasd.discovery.targets import Targets
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, AffineAction, GridAction
from atlasd.runtime.executor import all_cores
from atlasd.runtime.progress import Progress, tell
from atlasd.runtime.stages import located
from atlasd.studies.own_data.charts import NOT_LINEAR, Placement, place_charts, plan_charts, slowness
from atlasd.studies.own_data.settings import OwnConfig
from atlasd.studies.record import Extras

CONFIG = OwnConfig


def run(config: OwnConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Opens the files, and answers."""
    return answer(config, open_files(config), seed, progress)


def answer(config: OwnConfig, files: list[DataFile], seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Reads and checks the data, says what was understood and how long it may take, and asks for the symmetry."""
    if config.flow:
        return _run_flow(config, seed, progress)
    started = time.monotonic()
    data, choice = choose_own(config, files)
    raw = data
    sphere = config.charts.startswith("sphere")
    action, data, pairs = _action(data, config.vectors, sphere, config.targets)
    if config.translations:
        action = _with_translations(action, data)
    budget, slow = parse_time(config.budget) if config.budget else None, slowness()
    free = None if budget is None else budget / slow
    placement = plan_charts(data, config.charts, config.in_radius, config.out_radius, pairs, free)
    for line in _summary(config, data, choice, files, placement, action, slow):
        if line.startswith(("guessed:", "note:")):
            tell(progress, line)  # what nobody asked for is said even where progress is not shown
        else:
            progress.say(line)
    atlas, survey = place_charts(data, placement, seed, progress)
    with all_cores(len(chart_blocks(len(atlas))) if atlas is not None else 1):
        shared: dict[str, Any] = {"atlas": atlas, "tolerance": config.tolerance, "seed": seed}
        found = (
            _with_channels_found(data, progress, shared)
            if config.vectors == "find"
            else discover(
                data.x,
                data.y,
                **shared,
                action=action,
                rho_out=_asked(config.targets, data, action),
                budget=None if budget is None else max(budget - (time.monotonic() - started), 1.0),
                device=config.device,
                progress=progress,
            )
        )
    if not data.is_field and data.x.ndim == 2 and len(choice.inputs) == data.x.shape[1] > 1:
        found = replace(found, config={**found.config, "axes": [v.name for v in choice.inputs]})
    metrics: dict[str, Any] = {"samples": len(data.x), "charts": placement.kind}
    metrics["data"] = {
        "file": " and ".join(f"{f.path.name} ({f.kind})" for f in files),
        "input": f"{_shown(choice.inputs)}, used as {_shape(data.x)}",
        "target": f"{_shown(choice.targets)}, used as {_shape(data.y)} {'classes' if data.classes else 'values'}",
        "notes": "; ".join(data.notes) or "everything was used",
    }
    if survey is not None:
        found = replace(found, charts=(*found.charts, *survey.dropped))
        metrics |= {
            "reach": survey.reach,
            "outside": {str(r): share for r, share in survey.outside.items()},
            "local": survey.local,
            "used": len(survey.atlas),
            "dropped": len(survey.dropped),
        }
    return found, Extras(metrics, {}, _picture(raw, atlas.radii if atlas else None, action))


def _run_flow(config: OwnConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Asks for the symmetries of a flow: of velocities where a target is given, or else of the step to the next row."""
    steps = not config.target and not config.second
    if steps:
        names = config.input or ",".join(open_data(located(config.file)).variables)
        config = replace(config, input=names, target=names, ahead=config.ahead or 1)
    data, choice, _ = load_own(config)
    progress.say(f"states: {_shown(choice.inputs)}, used as {_shape(data.x)}")
    progress.say(f"velocities: {'steps to later rows' if steps else _shown(choice.targets)}")
    found = discover_flow(
        data.x, None if steps else data.y, after=data.y if steps else None, tolerance=config.tolerance, seed=seed,
        progress=progress, names=[v.name for v in choice.inputs] if len(choice.inputs) == data.x.shape[1] else None,
    )  # fmt: skip
    answer = found.symmetries
    listed = f" These are {'; '.join(c.formula for c in found.conserved)}." if found.conserved else ""
    reason = f"{answer.verdict.reason} {found.reason}{listed}"
    answer = replace(answer, verdict=replace(answer.verdict, reason=reason))
    conserved = [{"formula": c.formula, "upper": c.upper} for c in found.conserved]
    return answer, Extras({"samples": len(data.x), "conserved": conserved}, {}, {})


def load_own(config: OwnConfig) -> tuple[OwnData, Choice, list[DataFile]]:
    """The data as they will be used, what was chosen, and the files."""
    files = open_files(config)
    return (*choose_own(config, files), files)


def open_files(config: OwnConfig) -> list[DataFile]:
    """The files that were named."""
    if not config.file:
        raise InputError("`file` must name the data, got none; write atlasd discover FILE.")
    return [open_data(located(name)) for name in (config.file, config.second) if name]


def choose_own(config: OwnConfig, files: list[DataFile]) -> tuple[OwnData, Choice]:
    """The data of open files as they will be used, and what was chosen."""
    if config.tokens and not all(len(v.shape) <= 1 for f in files for v in f.variables.values()):
        raise InputError("--tokens must name columns of a table, got arrays with more axes; use --input.")
    choice = choose(files, config.input, config.target, config.tokens, config.ahead)
    cleaning = Cleaning(
        nan=config.nan,
        duplicates=config.duplicates,
        task=config.task,
        samples=config.samples,
        ahead=config.ahead,
    )
    return read_own(choice, cleaning), choice


def _asked(targets: str, data: OwnData, action: Action | None) -> Targets:
    """Which transformations of the targets are tried."""
    if targets == "fixed":
        return "trivial"
    if isinstance(action, GridAction) and action.rho_out is not None:
        return None  # names of the channels have said it
    if isinstance(action, GridAction) and targets == "auto":
        # Inputs are vectors, by their names; those of the targets say nothing.
        return ("vector", "trivial") if not data.classes and data.y.shape[1] % 2 == 0 else None
    if data.classes:
        if targets == "move":
            raise InputError("--targets move needs targets with values, got classes, which do not move; leave it out.")
        return None
    if targets == "move":
        return "vector" if data.is_field else ("vector", "covector")
    # Channels with names that are no components of vectors are scalars.
    return "trivial" if data.is_field and data.inputs and data.targets else "auto"


def _action(
    data: OwnData, vectors: str, sphere: bool, targets: str = "auto"
) -> tuple[Action | None, OwnData, tuple[tuple[int, int], ...]]:
    """How matrices mix the channels, the data in standard units, and the pairs of channels that charts rotate."""
    if vectors == "find":
        if data.x.ndim != 4 or data.y.ndim != 4 or sphere:
            raise InputError("--vectors find needs 2-D fields with values, in the plane; leave it out.")
        return None, data, ()
    pairs_in, pairs_out = (find_pairs(names, vectors) for names in (data.inputs, data.targets))
    if targets == "fixed":
        pairs_out = ()
    if not data.is_field or data.x.ndim != 4:
        if vectors not in ("auto", "none"):
            raise InputError(f"--vectors must be left out unless inputs are 2-D fields, got {vectors!r}.")
        return None, scaled(data, (), ()) if data.is_field else data, ()
    if vectors not in ("auto", "none") and not pairs_in and not pairs_out:
        raise InputError(f"--vectors must name two of {', '.join(data.inputs + data.targets)}, got {vectors!r}.")
    if data.classes:
        pairs_out = ()
    nameless = vectors == "auto" and not sphere and not pairs_out
    data = scaled(
        data, pairs_in or (_possible(data.x) if nameless else ()), _possible(data.y) if nameless else pairs_out
    )
    if sphere:
        data = replace(data, x=data.x.flip(-2), y=data.y.flip(-2)) if data.rows_up else data  # north comes first
        if pairs_in != pairs_out:
            raise InputError(
                "--charts sphere needs the same vectors in input and target, got "
                f"{len(pairs_in)} and {len(pairs_out)} pairs; use --vectors none or --charts auto."
            )
        if pairs_in:  # charts of the sphere give the components along rows first
            rho = Mixing(data.x.shape[1], tuple((v, u) for u, v in pairs_in))
            return GridAction(rho_in=rho, rho_out=rho), data, pairs_in
    if not pairs_in and not pairs_out:
        return None, data, ()
    up = data.rows_up is not False
    rho_in = Mixing(data.x.shape[1], pairs_in, up) if pairs_in else None
    rho_out = Mixing(data.y.shape[1], pairs_out, up) if pairs_out else None
    return GridAction(rho_in=rho_in, rho_out=rho_out), data, ()


def _with_translations(action: Action | None, data: OwnData) -> Action:
    """The action with translations: of vectors, or of fields on a grid."""
    if not data.is_field:
        return AffineAction()
    if isinstance(action, GridAction):
        return replace(action, translations=True)
    return GridAction(dimensions=data.x.ndim - 2, translations=True)


def _with_channels_found(data: OwnData, progress: Progress, shared: dict[str, Any]) -> Discovery:
    """The discovery with the mixing of channels that makes the map commute with rotations."""
    found = discover_representation(data.x, data.y, progress=progress, **shared)
    verdict = found.symmetries.verdict
    return replace(found.symmetries, verdict=replace(verdict, reason=f"{verdict.reason} {found.reason}"))


def _possible(field: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """Channels two by two, where they may be components of vectors: those keep their mean and share one unit."""
    channels = field.shape[1] if field.ndim == 4 else 1
    return tuple((c, c + 1) for c in range(0, channels, 2)) if channels % 2 == 0 else ()


def _summary(
    config: OwnConfig,
    data: OwnData,
    choice: Choice,
    files: list[DataFile],
    placement: Placement,
    action: Action | None,
    slow: float,
) -> list[str]:
    """What was understood, one line each."""
    lines = [f"data: {' and '.join(f'{f.path} ({f.kind})' for f in files)}"]
    lines.append(f"input: {_shown(choice.inputs)}, used as {_shape(data.x)}")
    lines.append(
        f"target: {_shown(choice.targets)}, used as {_shape(data.y)} {'classes' if data.classes else 'values'}"
    )
    if choice.guessed:
        lines.append("guessed: " + " ".join(f"{k} {shlex.quote(v)}" for k, v in choice.guessed.items()))
    if isinstance(action, GridAction):
        for side, rho, names in (("input", action.rho_in, data.inputs), ("target", action.rho_out, data.targets)):
            if isinstance(rho, Mixing):
                inside = ", ".join(f"({names[c]} along columns, {names[r]} along rows)" for c, r in rho.pairs)
                lines.append(f"vectors in the {side}: {inside}; --vectors none takes them as scalars")
    unused = [v.unusable for f in files for v in f.variables.values() if f.table and not v.numeric and v.example]
    lines += [
        f"note: {n}" for n in (*data.notes, *(f"column {reason.split(';')[0]} and is left out" for reason in unused))
    ]
    lines.append(f"charts: {placement.describe()}")
    estimate = _time(slow * placement.seconds)
    if data.is_field and not data.classes:
        estimate += f", or {_time(NOT_LINEAR * slow * placement.seconds)} if the map is not linear"
    lines.append(f"tolerance: {config.tolerance:g}; estimated time: {estimate}")
    return lines


def parse_time(text: str) -> float:
    """Seconds of a text such as 90, 90s, 2min or 1h.

    Example:
        >>> parse_time("2min"), parse_time("90")
        (120.0, 90.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h)?\s*", text)
    if match is None or float(match[1]) <= 0:
        raise InputError(f"--budget must be a time such as 90s or 2min, got {text!r}.")
    return float(match[1]) * {"h": 3600.0, "m": 60.0, "min": 60.0}.get(match[2] or "s", 1.0)


def _shown(variables: Any) -> str:
    shown = [str(v) for v in variables]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(str(s) for s in tensor.shape)


def _time(seconds: float) -> str:
    return f"about {max(5, 5 * round(seconds / 5))} s" if seconds < 90 else f"about {seconds / 60:.0f} min"


def _picture(data: OwnData, radii: tuple[int, int] | None, action: Action | None) -> dict[str, torch.Tensor]:
    """One sample for the report, in units of the file; which channels are vectors, and where north is."""
    if data.x.ndim != 4:
        return {}
    output = data.y[0].float() if data.y.ndim == 4 else data.y[0].float().unsqueeze(0)
    fields = {"input": data.x[0], "output": output}
    if data.rows_up is not None:
        fields["rows_up"] = torch.tensor(1.0 if data.rows_up else -1.0)
    for name in ("input", "output"):
        rho = getattr(action, f"rho_{name.removesuffix('put')}", None)
        if isinstance(rho, Mixing):
            fields[f"{name}_vectors"] = torch.tensor(rho.pairs)
    if radii is not None:
        fields["radii"] = torch.tensor(np.array(radii, dtype=np.float64))
    return fields
