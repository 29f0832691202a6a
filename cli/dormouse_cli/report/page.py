"""A report as one HTML page, which needs nothing beside itself."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape

import plotly.graph_objects as go  # type: ignore[import-untyped]
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
from plotly.subplots import make_subplots  # type: ignore[import-untyped]

from dormouse.state.jobs import JobRecord
from dormouse.state.versions import iso_time
from dormouse_cli.report.contents import STATES, Contents, ReportBlock, amount, size

FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
INK, FAINT, LINE = "#1f2933", "#7b8794", "#e4e7eb"
BARS = "#3e7cb1"
STATE_COLOURS = {
    "assigned": "#9aa5b1",
    "running": "#e9b44c",
    "finished": "#4c9f70",
    "failed": "#c8553d",
    "refused": "#8e5ea2",
}
FEW_TO_MANY = [[0.0, "#dcebe3"], [0.35, "#a8cdb9"], [0.7, "#e9b44c"], [1.0, "#c8553d"]]
"""From one shard a leaf, where a look-up opens one file, to many."""
FAIR_REFERENCES_PER_LEAF = 12
BINS = 48
RANGE_CHARACTERS = 80


def tree(blocks: Sequence[ReportBlock]) -> go.Figure:
    """Draw the partition tree: the wider the more rows, the redder the more shards a leaf has."""
    most = max(block.references_per_leaf for block in blocks)
    figure = go.Figure(
        go.Icicle(
            ids=[block.id for block in blocks],
            parents=[block.parent for block in blocks],
            values=[block.rows for block in blocks],
            labels=[amount(block.rows) for block in blocks],
            customdata=[_hover_text(block) for block in blocks],
            branchvalues="total",
            sort=False,
            tiling={"orientation": "v", "pad": 1},
            pathbar={"visible": False},
            root={"color": LINE},
            marker={
                "colors": [block.references_per_leaf for block in blocks],
                "colorscale": FEW_TO_MANY,
                "cmin": 0,
                "cmax": max(most, FAIR_REFERENCES_PER_LEAF),
                "showscale": True,
                "colorbar": _colour_bar(),
            },
            hovertemplate=(
                "<b>%{customdata[0]}</b><br>%{customdata[1]}<br>%{value:,} rows, "
                "%{customdata[2]}<br>%{customdata[3]}<extra></extra>"
            ),
        )
    )
    _dress(figure, height=420)
    figure.update_layout(
        margin={"l": 0, "r": 0, "t": 8, "b": 48}, uniformtext={"minsize": 10, "mode": "hide"}
    )
    return figure


def leaves(blocks: Sequence[ReportBlock]) -> go.Figure:
    """Draw rows and shards along the keys, a bar a leaf, or several leaves where they are many."""
    bottom = [block for block in blocks if block.is_bottom]
    figure = make_subplots(
        rows=2,
        shared_xaxes=True,
        vertical_spacing=0.16,
        subplot_titles=("rows per leaf", "shards per leaf"),
    )
    bars = (
        ([block.rows / block.leaves for block in bottom], BARS),
        ([block.references_per_leaf for block in bottom], "#8aa29e"),
    )
    for row, (values, colour) in enumerate(bars, start=1):
        figure.add_bar(
            y=values,
            marker={"color": colour},
            customdata=[_hover_text(block) for block in bottom],
            hovertemplate=(
                "<b>%{customdata[0]}</b><br>%{customdata[1]}<br>%{y:,.3~s} a leaf"
                "<br>%{customdata[3]}<extra></extra>"
            ),
            row=row,
            col=1,
        )
    _dress(figure, height=360)
    figure.update_layout(showlegend=False, bargap=0.08)
    figure.update_xaxes(showticklabels=False, showgrid=False)
    title = {
        "text": "leaves, from the least key to the greatest",
        "font": {"color": FAINT, "size": 12},
    }
    figure.update_xaxes(title=title, row=2, col=1)
    figure.update_yaxes(rangemode="tozero", nticks=4)
    _whole_ticks(figure, 2, max(block.references_per_leaf for block in bottom))
    return figure


def jobs(records: Sequence[JobRecord]) -> go.Figure:
    """Draw how many jobs of each kind were begun over time, coloured by what became of them."""
    times = [record.began_ms for record in records]
    first_ms, last_ms = min(times), max(times)
    width_ms = max(1, -(-(last_ms - first_ms + 1) // BINS))
    kinds = sorted({record.kind for record in records})
    figure = make_subplots(
        rows=len(kinds),
        shared_xaxes=True,
        vertical_spacing=0.3 / len(kinds) if len(kinds) > 1 else 0,
        subplot_titles=[escape(kind) for kind in kinds],
    )
    counts: Counter[tuple[str, str, int]] = Counter(
        (r.kind, r.state, (at - first_ms) // width_ms) for r, at in zip(records, times, strict=True)
    )
    for row, kind in enumerate(kinds, start=1):
        for state in STATES:
            bins = sorted(b for k, s, b in counts if (k, s) == (kind, state))
            if bins:
                figure.add_bar(
                    x=[_time(first_ms + b * width_ms + width_ms // 2) for b in bins],
                    y=[counts[kind, state, b] for b in bins],
                    width=width_ms * 0.9,
                    name=state,
                    marker={"color": STATE_COLOURS[state]},
                    hovertemplate=f"%{{y:,}} {state}<br>about %{{x|%d %b %H:%M:%S}}<extra></extra>",
                    row=row,
                    col=1,
                )
    _dress(figure, height=72 + 92 * len(kinds))
    figure.update_layout(barmode="stack", showlegend=False)  # the page has the legend
    margin_ms = width_ms / 2
    figure.update_xaxes(range=[_time(first_ms - margin_ms), _time(last_ms + width_ms + margin_ms)])
    figure.update_yaxes(rangemode="tozero", nticks=3, tickformat=",d")
    for row, kind in enumerate(kinds, start=1):
        _whole_ticks(figure, row, max(_stacked(counts, kind).values()))
    return figure


def _stacked(counts: Counter[tuple[str, str, int]], kind: str) -> Counter[int]:
    """Add up the jobs of a kind in each bin, whatever became of them."""
    total: Counter[int] = Counter()
    for (each, _, number), count in counts.items():
        total[number] += count if each == kind else 0
    return total


def _whole_ticks(figure: go.Figure, row: int, highest: float) -> None:
    """Mark whole numbers only, where there are few."""
    if highest <= 4:
        figure.update_yaxes(dtick=1 if highest <= 2 else 2, row=row, col=1)


def _hover_text(block: ReportBlock) -> list[str]:
    """Return what is said of a block; Plotly reads it as a kind of HTML, so it is escaped."""
    leaves = "one leaf" if block.leaves == 1 else f"{block.leaves:,} leaves"
    shards = f"{block.references_per_leaf:.3g} shards a leaf"
    is_long = len(block.range) > RANGE_CHARACTERS
    name = block.range[: RANGE_CHARACTERS - 1] + "…" if is_long else block.range
    return [
        f"partition {escape(block.id)}",
        escape(name),
        size(block.size_bytes),
        f"{leaves}, {shards}",
    ]


def _time(time_ms: float) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


def _colour_bar() -> dict[str, object]:
    return {
        "title": {"text": "shards per leaf", "side": "top"},
        "orientation": "h",
        "thickness": 10,
        "len": 0.5,
        "x": 0,
        "xanchor": "left",
        "y": -0.02,
        "yanchor": "top",
        "outlinewidth": 0,
    }


def _dress(figure: go.Figure, *, height: int) -> None:
    figure.update_layout(
        template="none",
        height=height,
        font={"family": FONT, "size": 12, "color": INK},
        margin={"l": 44, "r": 8, "t": 32, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"bgcolor": "white", "font": {"color": INK}, "align": "left"},
    )
    figure.update_xaxes(gridcolor=LINE, linecolor=LINE, zeroline=False, tickfont={"color": FAINT})
    figure.update_yaxes(gridcolor=LINE, linecolor=LINE, zeroline=False, tickfont={"color": FAINT})
    figure.update_annotations(font={"size": 12, "color": FAINT}, x=0, xanchor="left")


_CONFIG = {"displayModeBar": False, "responsive": True, "scrollZoom": False}


def page(contents: Contents) -> str:
    """Return the page. All text in it is escaped, save what Plotly made."""
    has_rows = any(block.rows for block in contents.blocks)
    drawn = sum(block.is_bottom for block in contents.blocks)
    return _template().render(
        report=contents,
        made=iso_time(contents.made_ms),
        states=STATES,
        seen_states={job.state for job in contents.jobs},
        colours=STATE_COLOURS,
        known_ages=any(queue.oldest_seconds is not None for queue in contents.queues),
        drawn=drawn,
        tree=_drawn(tree(contents.blocks), "tree") if has_rows else None,
        leaves=_drawn(leaves(contents.blocks), "leaves") if has_rows else None,
        jobs=_drawn(jobs(contents.jobs), "jobs") if contents.jobs else None,
        plotly=Markup(get_plotlyjs()),  # noqa: S704  # the library's own code
    )


def _drawn(figure: go.Figure, name: str) -> Markup:
    html = figure.to_html(
        full_html=False, include_plotlyjs=False, config=_CONFIG, div_id=f"figure-{name}"
    )
    return Markup(html)  # noqa: S704  # Plotly escapes what it embeds


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("dormouse_cli.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
