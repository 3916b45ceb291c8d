"""A self-contained HTML page with text, tables and plots; it holds plotly.js and loads nothing."""

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import orjson

from metrics.figure import Figure


def render_page(title: str, subtitle: str, body: str, figures: Iterable[Figure]) -> bytes:
    """The page as UTF-8. `body` is HTML in which `figure_cards` has made a place for each of `figures`."""
    return assemble(
        title, subtitle, body, data=list(figures), styles=["page.css"], scripts=["theme.js", "report.js", "tables.js"]
    )


def assemble(
    title: str, subtitle: str, body: str, *, data: object, styles: Iterable[str], scripts: Iterable[str]
) -> bytes:
    """The page as UTF-8 from parts of this folder. The scripts find `data` in the element of that id."""
    return (
        Template(_part("page.html"))
        .substitute(
            title=escape(title),
            subtitle=escape(subtitle),
            body=body,
            styles="".join(map(_part, styles)),
            plotly=_plotly_js(),
            # A JSON string may hold "</script>"; an escaped "<" means the same to a JSON parser.
            data=orjson.dumps(data).decode().replace("<", "\\u003c"),
            scripts="".join(map(_part, scripts)),
        )
        .encode()
    )


def _part(name: str) -> str:
    return files("metrics").joinpath(name).read_text("utf-8")


def figure_cards(figures: Mapping[str, Figure], *, first: int = 0) -> str:
    """A place per figure, under its title; `first` is how many figures stand on the page before."""
    return "".join(
        f'<figure class="card{" wide" if "height" in figure["layout"] else ""}"><h3>{escape(title)}</h3>'
        f'<div class="plot" id="plot{index}"></div></figure>'
        for index, (title, figure) in enumerate(figures.items(), start=first)
    )


def plots(figures: Mapping[str, Figure], *, first: int = 0) -> str:
    """The grid of `figure_cards`, and what a reader without JavaScript is told."""
    return (
        "<noscript><p>The plots need JavaScript; nothing is loaded from elsewhere.</p></noscript>"
        f'<div class="grid">{figure_cards(figures, first=first)}</div>'
    )


def head(columns: Iterable[str]) -> str:
    return f"<thead><tr>{''.join(f'<th>{escape(column)}</th>' for column in columns)}</tr></thead>"


def cells(texts: Iterable[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, css: str = "") -> str:
    """A card with a table; the first cell of a row is its heading."""
    body = "".join(f"<tr><th>{escape(heading)}</th>{cells(texts)}</tr>" for heading, *texts in rows)
    return f'<div class="card scroll"><table class="{css}">{head(columns)}<tbody>{body}</tbody></table></div>'


def _plotly_js() -> str:
    """The library as the plotly package ships it; importing that package would cost more than the page."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text("utf-8")
