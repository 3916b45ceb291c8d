"""The folder of studies: report.html with plots, studies.md, studies.json and, if asked for, the plots as PNG."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from metrics.figure import Figure
from metrics.files import check_folder, to_json, write_files
from metrics.page import plots, render_page, table
from metrics.png import check_png, render_png
from metrics.summary import baton_version
from sim.studies.study import CLAIM_COLUMNS, Study, claim_rows

INDEX = "studies.json"
SCHEMA = "baton.studies/1"


class StudyFolder:
    """`out_dir`, which must be empty or hold earlier studies. ConfigError when not, or when PNG cannot be had."""

    def __init__(self, out_dir: str | Path, *, png: bool = False) -> None:
        self.path = Path(out_dir)
        self._png = png
        if png:
            check_png()
        check_folder(self.path, index=INDEX, schema=SCHEMA)

    def write(self, studies: Sequence[Study]) -> None:
        images = {
            f"{study.name}-{_slug(title)}.png": [render_png(title, figure)]
            for study in studies
            for title, figure in study.figures.items()
            if self._png
        }
        index = {"schema": SCHEMA, "version": baton_version(), "studies": [as_json(study) for study in studies]}
        pages = {
            "report.html": [render_studies(studies)],
            "studies.md": ["\n".join(map(markdown, studies)).encode()],
            INDEX: [to_json(index)],
        }
        write_files(self.path, images | pages)


def as_json(study: Study) -> dict[str, Any]:
    """Everything but the figures."""
    return {
        "name": study.name,
        "title": study.title,
        "method": study.method,
        "holds": study.holds,
        "claims": [asdict(claim) for claim in study.claims],
        "tables": [asdict(one) for one in study.tables],
    }


def render_studies(studies: Sequence[Study]) -> bytes:
    """One page about all of them, as UTF-8; it loads nothing."""
    figures: list[Figure] = []
    parts = []
    if len(studies) > 1:
        rows = [(study.name, *row[1:]) for study in studies for row in claim_rows(study.claims)]
        parts.append(f"<h2>Claims</h2>{table(('study', *CLAIM_COLUMNS[1:]), rows)}")
    for study in studies:
        parts.append(_section(study, first_figure=len(figures)))
        figures += study.figures.values()
    title = studies[0].title if len(studies) == 1 else "Studies"
    return render_page(title, f"Baton {baton_version()}", "\n".join(parts), figures)


def _section(study: Study, *, first_figure: int) -> str:
    tables = "".join(
        f"<h3>{escape(one.title)}</h3>{table(one.columns, one.rows)}"
        + (f'<p class="quiet">{escape(one.note)}</p>' if one.note else "")
        for one in study.tables
    )
    return (
        f'<h2 id="{study.name}">{escape(study.title)}</h2><p>{escape(study.method)}</p>'
        f"{table(CLAIM_COLUMNS, claim_rows(study.claims))}{plots(study.figures, first=first_figure)}{tables}"
    )


def markdown(study: Study) -> str:
    parts = [f"# {study.title}", study.method, _markdown_table(CLAIM_COLUMNS, claim_rows(study.claims))]
    for one in study.tables:
        parts += [f"## {one.title}", _markdown_table(one.columns, one.rows), *([one.note] if one.note else [])]
    return "\n\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
