"""A report as one HTML page, which needs nothing beside itself."""

from __future__ import annotations

from functools import cache

import plotly.graph_objects as go  # type: ignore[import-untyped]
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from dormouse_cli.report import figures
from dormouse_cli.report.contents import STATES, Contents
from dormouse_cli.terminal import iso_time

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
        colours=figures.STATE_COLOURS,
        known_ages=any(queue.oldest_seconds is not None for queue in contents.queues),
        drawn=drawn,
        tree=_drawn(figures.tree(contents.blocks), "tree") if has_rows else None,
        leaves=_drawn(figures.leaves(contents.blocks), "leaves") if has_rows else None,
        jobs=_drawn(figures.jobs(contents.jobs), "jobs") if contents.jobs else None,
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
