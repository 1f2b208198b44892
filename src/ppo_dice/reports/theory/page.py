"""One self-contained page of pictures, sentences and tables."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple


class Table(NamedTuple):
    """A header and rows of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Section(NamedTuple):
    """A picture with what to see in it, the most important first, and its numbers."""

    title: str
    picture: Path
    sentences: Sequence[str]
    table: Table


_STYLE = """
body { font-family: system-ui, sans-serif; line-height: 1.45; color: #222; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
img { max-width: 100%; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0 2.5rem; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
footer { font-size: .8rem; color: #666; }
"""
_INTRODUCTION = (
    "Everything here is measured on systems whose visitation distributions and divergences are known "
    "exactly. π is the policy that made the data and π' another one. d and d' are their discounted state "
    "visitations, μ and μ' those of states with actions. g is the discriminator by which the divergence is "
    "estimated."
)


def page(sections: Sequence[Section], content: dict[str, Any]) -> str:
    """HTML with every picture inside."""
    body = "\n".join(_section(section) for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ppo-dice: the laboratory</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>The laboratory</h1>\n<p>{escape(_INTRODUCTION)}</p>\n{body}\n{_footer(content)}\n"
        "</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    image = base64.b64encode(section.picture.read_bytes()).decode()
    return (
        f"<h2>{escape(section.title)}</h2>\n"
        f'<img src="data:image/png;base64,{image}" alt="{escape(section.title)}">\n'
        f"<p>{escape(' '.join(section.sentences))}</p>\n{_table(section.table)}"
    )


def _table(table: Table) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _footer(content: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    total = sum(content["seconds"].values())
    return f"<footer>Made by <code>ppo-dice theory</code> in {total:.0f} s with {escape(packages)}.</footer>"
