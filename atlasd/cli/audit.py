"""Which symmetries a trained model has."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasd.cli.common import AsJson, Seed, tell
from atlasd.errors import DataError, InputError

if TYPE_CHECKING:
    from atlasd.algebra.group import Group

_FIELDS, _VECTORS = 256, 4096
"""Samples by default: layers of vectors are judged by regressions on all their channels."""


def audit(
    model: Annotated[Path, typer.Argument(metavar="MODEL", readable=False, help="A .pt2 or .onnx file.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", readable=False, help="Inputs: npz, npy, HDF5, ...")],
    group: Annotated[str, typer.Option(help="Such as C4, D4, SO(2), O(3), SO(1,3); discovered if left out.")] = "",
    input: Annotated[str, typer.Option(metavar="NAME", help="Variable of the inputs  [default: x, or the first]")] = "",
    target: Annotated[str, typer.Option(metavar="NAME", help="Variable of the targets: what the data have.")] = "",
    vectors: Annotated[bool, typer.Option("--vectors", help="Outputs are vectors that transform.")] = False,
    samples: Annotated[int, typer.Option(help=f"Most samples used; 0 for {_FIELDS} fields or {_VECTORS} vectors.")] = 0,
    fix: Annotated[bool, typer.Option("--fix", help="Make it symmetric and show the price; needs --target.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write the page  [default: MODEL.audit.html]")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Tell which symmetries a trained model has, and which layer breaks them.

    \b
    Examples:
      atlasd audit model.pt2 data.npz --group C4
      atlasd audit model.pt2 data.npz --group 'SO(2)' --target y --fix
    """
    import torch

    from atlasd.nn.auditing import audit as run
    from atlasd.nn.exporting import batch_limits, example_input, load_model
    from atlasd.nn.tensor_types import vector
    from atlasd.report.html import write_audit

    asked = named_group(group) if group else None
    loaded = load_model(model)
    x, y = _read(data, input, target, samples)
    least, most = batch_limits(loaded)
    if least > len(x) or (most is not None and most < 4):
        raise DataError(
            f"`{model}` must take between 4 and {len(x)} samples at a time, got a program for "
            f"{most if most is not None and most < 4 else least}; "
            "export it with a dynamic batch, dynamic_shapes=({0: torch.export.Dim('batch')},)."
        )
    x, y = x[:most], None if y is None else y[:most]
    like = example_input(loaded)
    given = torch.as_tensor(x).to(torch.float32 if like is None else like.dtype)
    labels = None if y is None else torch.as_tensor(y)
    found = run(loaded, given, asked, labels, outputs=vector() if vectors else None, fix=fix, seed=seed)
    page = write_audit(found, out or model.with_suffix(".audit.html"), f"Audit of {model.name}")
    if as_json:
        sys.stdout.write(json.dumps(found.to_dict(), indent=2) + "\n")
        return
    tell(str(found), err=False)
    tell(f"the page is {page}")


def named_group(name: str) -> Group:
    """A group by its name."""
    from atlasd.algebra import known
    from atlasd.algebra.group import Group

    compact = name.replace(" ", "")
    one = re.fullmatch(r"(SO|O|SL|GL\+|Sp|C|D)\(?(\d+)\)?", compact)
    if indefinite := re.fullmatch(r"(SO\+?|O)\((\d+),(\d+)\)", compact):
        signature = int(indefinite[2]), int(indefinite[3])
        if indefinite[1] != "O":
            return Group(known.so(*signature))
        if signature == (1, 3):
            return known.lorentz(4)
    if one:
        kind, n = one[1], int(one[2])
        makers: dict[str, Any] = {
            "SO": known.special_orthogonal, "O": known.orthogonal, "SL": known.special_linear,
            "GL+": known.general_linear_plus, "C": known.cyclic, "D": known.dihedral,
            "Sp": lambda n: Group(known.sp(n)),
        }  # fmt: skip
        made: Group = makers[kind](n)
        return made
    raise InputError(f"`group` must be a name such as C4, D4, SO(2), O(3) or SO(1,3), got {name!r}.")


def _read(path: Path, input: str, target: str, samples: int) -> tuple[Any, Any]:
    from atlasd.data.files import find_variable, open_data

    file = open_data(path)
    names = list(file.variables)
    first = input or ("x" if "x" in names else names[0])
    inputs = find_variable([file], first)
    rows = slice(0, samples or (_FIELDS if len(inputs.shape) > 3 else _VECTORS))
    return inputs.read(rows), find_variable([file], target).read(rows) if target else None
