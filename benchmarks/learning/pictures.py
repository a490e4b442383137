"""PNG files of what was measured. Needs matplotlib, which nothing else here does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Final

from benchmarks.learning.intervals import Interval

__all__ = ("bars", "curves", "points")

_COLOURS: Final = ("#1a5fb4", "#26a269", "#c64600", "#77767b", "#813d9c", "#e5a50a", "#a51d2d", "#000000")

_PALETTE: Final = 256


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError as error:
        raise SystemExit("pictures need matplotlib: pip install 'loopwright[bench]'") from error

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    pyplot.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    return pyplot.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    from PIL import Image  # matplotlib needs it too

    drawn = BytesIO()
    # Without the version of who wrote it, so that the same figures give the same file.
    figure.savefig(drawn, dpi=110, metadata={"Software": None})
    figure.clear()
    # Lines and bands have few colours; with a palette of them a file is a third as large.
    Image.open(drawn).convert("RGB").quantize(_PALETTE, method=Image.Quantize.FASTOCTREE).save(
        path, optimize=True
    )


def curves(
    path: Path,
    panels: Mapping[str, Mapping[str, Sequence[Interval]]],
    *,
    across: str,
    up: str,
    logarithmic: bool = False,
) -> None:
    """Draw lines with their bands, a panel for each entry."""
    columns = min(4, len(panels))
    rows = ceil(len(panels) / columns)
    figure, axes = _figure(rows, columns, 3.0 if len(panels) > 1 else 6.0, 2.3 if len(panels) > 1 else 3.4)
    for place, (title, lines) in enumerate(panels.items()):
        axis = axes[place // columns][place % columns]
        for (name, values), colour in zip(lines.items(), _COLOURS, strict=False):
            x = range(1, len(values) + 1)
            axis.plot(x, [one.value for one in values], label=name, color=colour, linewidth=1.3)
            low, high = [one.low for one in values], [one.high for one in values]
            axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        if len(panels) > 1:
            axis.set_title(title)
        if logarithmic:
            axis.set_yscale("log")
            axis.set_ylim(
                0.9,
                1.1 * max(one.high for lines in panels.values() for line in lines.values() for one in line),
            )
            ticks = [1, 2, 4, 8]
            axis.set_yticks(ticks, [str(tick) for tick in ticks])
            axis.minorticks_off()
        axis.set_xlabel(across)
        axis.set_ylabel(up)
    for place in range(len(panels), rows * columns):
        axes[place // columns][place % columns].axis("off")
    handles, labels = axes[0][0].get_legend_handles_labels()
    spare = rows * columns > len(panels)
    (axes[-1][-1] if spare else axes[0][0]).legend(
        handles, labels, loc="center" if spare else "best", frameon=False
    )
    _save(figure, path)


def bars(
    path: Path,
    panels: Mapping[str, Mapping[str, Interval]],
    *,
    units: Sequence[str],
    lines: Mapping[str, float] | None = None,
) -> None:
    """Draw one bar a name with its interval, the same names in every panel.

    Args:
        units: What stands under the panels.
        lines: By panel, a value to be marked.
    """
    figure, axes = _figure(1, len(panels), 3.4, 3.4)
    for place, (title, values) in enumerate(panels.items()):
        axis = axes[0][place]
        names = list(values)[::-1]
        for y, name in enumerate(names):
            one = values[name]
            if not isfinite(one.value):
                axis.text(0, y, " none right", va="center")
                continue
            axis.barh(y, one.value, color=_COLOURS[0] if name.startswith("full") else _COLOURS[3], height=0.7)
            axis.plot([one.low, one.high], [y, y], color="black", linewidth=1)
        axis.set_yticks(range(len(names)), names if place == 0 else [""] * len(names))
        axis.set_title(title)
        axis.set_xlabel(units[place])
        if lines and title in lines:
            axis.axvline(lines[title], color="black", linewidth=0.8, linestyle=":")
    _save(figure, path)


def points(
    path: Path, lines: Mapping[str, Sequence[tuple[float, Interval]]], *, across: str, up: str
) -> None:
    """Draw points with their intervals, a line for each name, with a logarithmic axis across."""
    figure, axes = _figure(1, 1, 6.0, 3.6)
    axis = axes[0][0]
    for (name, pairs), colour in zip(lines.items(), _COLOURS, strict=False):
        x, found = zip(*pairs, strict=True)
        error = [[one.value - one.low for one in found], [one.high - one.value for one in found]]
        axis.errorbar(
            x, [one.value for one in found], error, label=name, color=colour, marker="o", markersize=3, linewidth=1.2,
            elinewidth=0.8,
        )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.legend(frameon=False)
    _save(figure, path)
