"""The paper's ablations, and its searches seed by seed, as tables; each row is kept when it is done.

    python benchmarks/ablations.py cosets --seeds 20           D4 and arctan by the published search for cosets
    python benchmarks/ablations.py determinants --seeds 3      |det| = 1 against none, on heat and on jets
    python benchmarks/ablations.py similarity --seeds 5        standard basis against plain cosine, on jets
    python benchmarks/ablations.py dimension --seeds 1         the rule for k on heat, jets and climate
    python benchmarks/ablations.py limits --seeds 1 --fields 4000   growth limited by the norm or by entries, on heat

Predictors are fitted once for each seed and asked by both sides of an ablation. `--keep DIR` goes on where it was
stopped. One thread. The sizes are settings, and far below the paper's 1.2 million jets by default.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from atlasd.algebra.invariants import metric, metric_cosine
from atlasd.algebra.known import so, trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import Membership
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.gradient_steps import Tandem
from atlasd.discovery.prepare import prepare, prepare_untrained
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.files import write_atomically
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.climate.run import DISCOVERY, climate_atlas
from atlasd.studies.climate.second_order import SecondOrderPredictor
from atlasd.studies.climate.synthetic import synthetic_climate
from atlasd.studies.config import configure
from atlasd.studies.heat import run as heat
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat
from atlasd.studies.jets.data import load_jets
from atlasd.studies.jets.run import jet_moments
from atlasd.studies.lorentz import MINKOWSKI, conformal_lorentz, shared_pairs
from atlasd.studies.toys import arctan, d4
from atlasd.studies.toys.functions import toy
from atlasd.studies.toys.run import element_errors

PARITY = torch.diag(torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64))
MIRROR = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))


def heat_problem(options, seed):
    x = heat_fields(options.fields, generator=stream(seed, "heat", "fields"))
    y = simulate_heat(x, steps=50)
    kind = {"atlas": heat_atlas(options.atlas), "predictor": StencilPredictor()}
    return prepare(x, y, seed=seed, progress=Silent(), **kind)[0]


def jet_problem(options, seed):
    x, y = load_jets(samples=options.jets, constituents=30)
    network = MLPPredictor.published()
    network = replace(network, schedule=replace(network.schedule, epochs=options.fit_epochs))
    network = jet_moments(options.fit_epochs) if options.predictor == "moments" else network
    return prepare(x, y, predictor=network, seed=seed, progress=Silent())[0]


def climate_problem(options, seed):
    maps = synthetic_climate(
        options.maps, generator=stream(seed, "climate", "maps"), shape=(96, 144), variables=DISCOVERY
    )
    x = (maps.x - maps.x.mean((0, 2, 3), keepdim=True)) / maps.x.std((0, 2, 3), keepdim=True)
    kind = {"atlas": climate_atlas((96, 144)), "predictor": SecondOrderPredictor()}
    return prepare(x, maps.labels[:, 0], seed=seed, progress=Silent(), **kind)[0]


def function_cosets(name, options, seed):
    """The distinct ones among the best, and how far each true element is from the nearest, in degrees."""
    started, chosen = time.process_time(), toy(name)
    config = configure({"d4": d4, "arctan": arctan}[name].CONFIG, {"preset": "paper"})
    x = chosen.sample(config.samples, stream(seed, "toy", name))
    problem, _ = prepare(x, function=chosen.function, seed=seed, progress=Silent())
    found = config.make_cosets().find(problem, trivial(2), seed=seed)
    one = torch.eye(2, dtype=torch.float64)
    truth = chosen.group.cosets if name == "d4" else torch.stack([one, -one])
    found = problem.units.to_raw(found.matrices)
    errors, nearest = element_errors(found, truth)
    least = [min([e for e, k in zip(errors, nearest, strict=True) if k == i], default=180.0) for i in range(len(truth))]
    return {
        "function": name, "seed": seed, "proposed": len(found), "of": len(truth),
        "found": sum(e < 20 for e in least), "worst_deg": round(max(least), 2),
        "seconds": round(time.process_time() - started, 1),
    }  # fmt: skip


def determinant_cosets(name, options, seed):
    """Both settings on the same predictor and the exact algebra: what is proposed, and how near to each component."""
    problem = heat_problem(options, seed) if name == "heat" else jet_problem(options, seed)
    algebra, other = (so(2), MIRROR) if name == "heat" else (so(1, 3), PARITY)
    inside = LieAlgebra(problem.units.to_standard(algebra.basis))
    kind = {"starts": 16, "top": 8} if name == "heat" else {"starts": 64, "top": 16, "loss": "cross_entropy"}
    kind |= {"learning_rate": options.rate}
    if name == "heat":
        kind |= {"epochs": options.coset_epochs, "batch": options.coset_batch, "charts": options.pooled}
    else:
        kind |= {"epochs": options.jet_coset_epochs}
    rows = []
    for normalize in (True, False):
        started = time.process_time()
        found = CosetSearch.published(normalize=normalize, **kind).find(problem, inside, seed=seed)
        raw = problem.units.to_raw(found.matrices)
        members = Membership(algebra)
        away = {
            "identity": float(members.residuals(raw).min()),
            "other": float(members.residuals(torch.linalg.solve(other, raw)).min()),
        }
        scale = torch.linalg.det(raw).abs() ** (1 / raw.shape[-1])
        rows.append(
            {
                "data": name, "seed": seed, "det": "1" if normalize else "free", "proposed": len(raw),
                **{f"to_{k}": round(v, 3) for k, v in away.items()},
                "scale": f"{float(scale.min()):.2f} to {float(scale.max()):.2f}",
                "seconds": round(time.process_time() - started, 1),
            }
        )  # fmt: skip
    return rows


def jet_search(options, **changes):
    """The published search on jets, at the size asked for."""
    return GradientSearch.published(
        loss="cross_entropy", generators=7, growth=1.0, growth_limit=None, weight=0.1,
        epochs=options.search_epochs, **changes,
    )  # fmt: skip


def similarities(options, seed):
    problem, rows = jet_problem(options, seed), []
    exact = torch.diag(torch.tensor(MINKOWSKI, dtype=torch.float64))
    for similarity in ("standard", "cosine"):
        started = time.process_time()
        found = jet_search(options, similarity=similarity).find(problem, seed=seed, progress=Silent())
        basis = problem.units.to_raw(found.basis)
        algebra = LieAlgebra(basis)
        some = bool(len(basis))
        rows.append(
            {
                "similarity": similarity, "seed": seed, "generators": len(basis), "pairs": math.comb(len(basis), 2),
                "shared_pairs": shared_pairs(basis),
                "angle_deg": round(math.degrees(float(algebra.angles(conformal_lorentz()).max())), 1) if some else None,
                "metric_cosine": round(metric_cosine(metric(algebra).form, exact), 4) if some else None,
                "seconds": round(time.process_time() - started, 1),
            }
        )  # fmt: skip
    return rows


def dimensions(name, options, seed):
    """What the starts say for each k, and the number that the rule comes to."""
    started = time.process_time()
    if name == "jets":
        problem, search = jet_problem(options, seed), jet_search(options)
    elif name == "heat":
        problem = heat_problem(options, seed)
        search = GradientSearch.published(epochs=options.coset_epochs, charts=options.pooled)
    else:
        problem = climate_problem(options, seed)
        search = GradientSearch.published(loss="cross_entropy", growth=5.0, epochs=options.climate_epochs)
    search = replace(search, generators="auto", starts=options.starts, learning_rate=options.rate)
    found = search.find(problem, seed=seed, progress=Silent())
    notes = [note for note in found.notes if note.startswith("k = ")]
    seconds = round(time.process_time() - started, 1)
    return {"data": name, "seed": seed, "rule": len(found.basis), "why": "; ".join(notes), "seconds": seconds}


def limits(options, seed):
    """Where the loss is least under both growth limits, for the paper's CNNs after some passes over the fields.

    Four charts away from the walls; the search alone takes 200 steps at a rate of 0.02, so that it ends at a minimum.
    """
    config = configure(heat.CONFIG, {"preset": "paper", "samples": options.fields, "pooled": "mean"})
    x = heat_fields(options.fields, generator=stream(seed, "heat", "fields"))
    y = torch.cat([simulate_heat(part, steps=50) for part in x.split(200)])
    charts = heat_atlas("nineteen").charts
    atlas, network = Atlas(tuple(charts[i] for i in (3, 7, 11, 16))), heat._predictor(config)
    problem = prepare_untrained(x, y, predictor=network, atlas=atlas)
    tandem, order, rows = Tandem(problem, seed), stream(seed, "order"), []
    for epoch in range(1, max(options.passes) + 1):
        for part in torch.randperm(len(x), generator=order).split(16):
            tandem.learn(problem.inputs(part), problem.samples.targets(part))
        if epoch not in options.passes:
            continue
        for clip in ("norm", "entries"):
            search = replace(heat._search(config), tandem=False, epochs=None, steps=200, learning_rate=2e-2, clip=clip)
            found = search.find(problem.with_function(tandem.function), seed=seed, progress=Silent())
            angle = heat.span_angle(LieAlgebra(found.basis), so(2)) if len(found.basis) else 90.0
            size = float(found.basis.norm())
            rows.append({"seed": seed, "pass": epoch, "limit": clip, "norm": round(size, 2), "deg": round(angle, 2)})
    return rows


def work(options):
    """Names of the parts of a table, and what makes each."""
    seeds = range(options.first, options.first + options.seeds)
    if options.table == "cosets":
        return {f"{n} {s}": partial(function_cosets, n, options, s) for n in options.functions for s in seeds}
    if options.table == "determinants":
        return {f"{n} {s}": partial(determinant_cosets, n, options, s) for n in options.data for s in seeds}
    if options.table == "limits":
        return {f"heat {s}": partial(limits, options, s) for s in seeds}
    if options.table == "similarity":
        return {f"jets {s}": partial(similarities, options, s) for s in seeds}
    return {f"{n} {s}": partial(dimensions, n, options, s) for n in options.data for s in seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = ["cosets", "determinants", "similarity", "dimension", "limits"]
    parser.add_argument("table", nargs="?", default="cosets", choices=tables)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--data", nargs="+", default=["heat", "jets"], choices=["heat", "jets", "climate"])
    parser.add_argument("--functions", nargs="+", default=["d4", "arctan"], choices=["d4", "arctan"])
    parser.add_argument("--fields", type=int, default=400, help="heat fields")
    parser.add_argument("--atlas", default="three", choices=["nineteen", "three", "sheared"])
    parser.add_argument("--jets", type=int, default=20_000)
    parser.add_argument("--maps", type=int, default=120, help="synthetic climate maps")
    parser.add_argument("--fit-epochs", type=int, default=10, help="passes of the predictor of jets")
    parser.add_argument("--predictor", default="mlp", choices=["mlp", "moments"], help="of jets: the paper's, or ours")
    parser.add_argument("--search-epochs", type=int, default=1, help="passes of the search on jets")
    parser.add_argument("--coset-epochs", type=int, default=40, help="passes over heat fields")
    parser.add_argument("--coset-batch", type=int, default=16, help="heat fields in a step of the search for cosets")
    parser.add_argument("--pooled", default="sum", choices=["sum", "mean"], help="charts of heat in the loss")
    parser.add_argument("--jet-coset-epochs", type=int, default=1)
    parser.add_argument("--climate-epochs", type=int, default=30)
    parser.add_argument("--starts", type=int, default=3, help="starts for each k of the rule")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of the rule's searches and of cosets")
    parser.add_argument("--passes", type=int, nargs="+", default=[4, 10], help="passes after which limits are compared")
    parser.add_argument("--keep", type=Path, help="where finished rows are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = {k: v for k, v in vars(options).items() if k not in ("keep", "seeds", "first")}
    file = None if options.keep is None else options.keep / "rows.json"
    kept = json.loads(file.read_text()) if file is not None and file.is_file() else {}
    kept = kept if kept.get("settings") == settings else {"settings": settings}
    for name, part in work(options).items():
        rows = kept[name] if name in kept else part()
        kept[name] = rows
        if file is not None:
            write_atomically(file, lambda path: path.write_text(json.dumps(kept, indent=1)))
        for row in rows if isinstance(rows, list) else [rows]:
            print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
