"""The local symmetry of heat flow, learned from simulated fields, chart by chart.

Run: python examples/02_heat.py      (about a minute)
"""

from pathlib import Path

import atlasd as ad
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_fields, simulate_heat


def main(samples=300, out="runs/example-heat"):
    # Initial and final temperatures, (N, 1, 128, 128): heat spreads around a hot block in one corner.
    x = heat_fields(samples, initial="isotropic", generator=stream(0, "example"))
    y = simulate_heat(x)

    # Globally the block breaks every symmetry. Locally, away from it, no direction is special.
    atlas = ad.Atlas.at([(80, 40), (86, 80)], in_radius=14, out_radius=10)
    found = ad.discover(x, y, atlas=atlas, progress=False)
    print(found)

    # Everything is kept in a directory; the page has a slider that turns the fields.
    found.save(out)
    page = found.report(Path(out) / "report.html")
    print("the report is", page)
    return found


if __name__ == "__main__":
    main()
