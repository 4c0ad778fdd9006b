r"""How groups are displayed: LaTeX of a name, and matrices as coloured HTML tables."""

from __future__ import annotations

__all__ = ["heat_maps", "latex_name"]

import html
import re

from torch import Tensor

_FAMILY = re.compile(r"(SO|SL|GL|SU|Sp|SE|Aff|O|U|E)([+-]*)(\([0-9,]+\))")
_LETTER = re.compile(r"([CDVQAS]|Dic)([0-9]+)")


def latex_name(name: str) -> str:
    r"""Writes the name of a group in LaTeX.

    Example:
        >>> print(latex_name("O+(1,3)xR+"))
        \mathrm{O}^{+}(1,3) \times \mathbb{R}^{+}
        >>> print(latex_name("D4"))
        D_{4}
    """
    factors = [_latex_factor(factor) for factor in name.split("x")]
    if any(factor is None for factor in factors):
        return rf"\text{{{name}}}"
    return r" \times ".join(factor or "" for factor in factors)


def _latex_factor(factor: str) -> str | None:
    if factor == "trivial":
        return r"\{1\}"
    if factor == "R+":
        return r"\mathbb{R}^{+}"
    if match := _FAMILY.fullmatch(factor):
        family, sign, argument = match.groups()
        power = {"": "", "+": "^{+}", "+-": r"^{\pm}"}[sign]
        return rf"\mathrm{{{family}}}{power}{argument}"
    if match := _LETTER.fullmatch(factor):
        return f"{match[1]}_{{{match[2]}}}"
    return None


def heat_maps(title: str, sections: dict[str, Tensor], most: int = 16) -> str:
    r"""Shows matrices as small tables, blue below zero and red above.

    Arguments:
        title: A line of plain text.
        sections: Matrices with shape `(m, n, n)` under each heading.
        most: How many matrices of a section to show.

    Returns:
        HTML that stands alone: no script, no style sheet, everything escaped.
    """
    parts = [f"<div><p><b>{html.escape(title)}</b></p>"]
    for heading, matrices in sections.items():
        if not len(matrices):
            continue
        parts.append(f"<p>{html.escape(heading)}</p><div style='display:flex;flex-wrap:wrap;gap:12px'>")
        parts += [_table(matrix) for matrix in matrices[:most]]
        if len(matrices) > most:
            parts.append(f"<p>and {len(matrices) - most} more</p>")
        parts.append("</div>")
    return "".join([*parts, "</div>"])


def _table(matrix: Tensor) -> str:
    largest = max(float(matrix.abs().max()), 1e-12)
    rows = "".join(
        "<tr>" + "".join(_cell(value, value / largest) for value in row) + "</tr>" for row in matrix.tolist()
    )
    return f"<table style='border-collapse:collapse'>{rows}</table>"


def _cell(value: float, share: float) -> str:
    rest = round(255 * (1 - 0.7 * abs(share)))
    colour = f"rgb(255,{rest},{rest})" if share > 0 else f"rgb({rest},{rest},255)"
    # Adding zero turns -0.00 into 0.00.
    text = f"{round(value, 2) + 0.0:.2f}"
    return f"<td style='background:{colour};color:#000;padding:2px 6px;text-align:right'>{text}</td>"
