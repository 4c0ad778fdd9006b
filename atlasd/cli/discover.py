"""From a file to an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from atlasd.cli.common import Running, Seed, carry_out
from atlasd.cli.options import options_of, running_options
from atlasd.studies.own_data.settings import OwnConfig


@options_of(OwnConfig, arguments=("file", "second"), required=("file",))
@running_options
def discover(
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Run directory  [default: runs/FILE-seedS]")] = None,
    *,
    running: Running,
    **settings: Any,
) -> None:
    """Find the symmetry of the data in a file, and be told how sure that is.

    Fields on a grid are looked at chart by chart; tables and arrays of vectors as a whole. What is not given is
    guessed, and said before the work starts.

    \b
    Examples:
      atlasd discover run.npz
      atlasd discover x.npy y.npy --charts '64,19;86,19' --in-radius 14
      atlasd discover wind.nc --input u10,v10 --target pressure --nan mask
      atlasd discover events.csv --tokens 'E1,px1,py1,pz1;E2,px2,py2,pz2' --target M
      atlasd discover states.csv --flow
    """
    from atlasd.studies import OWN
    from atlasd.studies.config import configure
    from atlasd.studies.record import plan_config

    plan = plan_config(OWN, configure(OwnConfig, settings), seed=seed, out=out)
    carry_out(plan, running)
