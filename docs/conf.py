"""How Sphinx builds these pages, without network: `sphinx-build -W docs docs/_build/html`."""

import ast
import dataclasses
import importlib
import inspect
import itertools
from typing import Any, Literal, get_args, get_origin, get_type_hints

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import ppo_dice

project = "ppo-dice"
author = "The ppo-dice authors"
copyright = "2026, the ppo-dice authors"
release = version = ppo_dice.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"ppo-dice {release}"
html_static_path = ["_static"]

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
add_module_names = False
default_role = "literal"  # docstrings write `code` in single backquotes


class _TableDirective(SphinxDirective):
    """A table in Markdown, parsed as if it stood in the page."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        container = nodes.Element()
        self.state.nested_parse(
            StringList(self.markdown(), source=self.env.docname), self.content_offset, container
        )
        return container.children

    def markdown(self) -> list[str]:
        raise NotImplementedError


class ConfigTable(_TableDirective):
    """Every field of a config: its default, what it may be, and the sentence under it in the source."""

    required_arguments = 1
    optional_arguments = 1  # what the options begin with, e.g. `dice.`

    def markdown(self) -> list[str]:
        prefix = self.arguments[1] if len(self.arguments) > 1 else ""
        module, _, name = self.arguments[0].rpartition(".")
        cls = getattr(importlib.import_module(module), name)
        hints, sentences = get_type_hints(cls), field_sentences(cls)
        return [
            "| field | default | values | meaning |",
            "|---|---|---|---|",
            *(
                f"| `{prefix}{field.name}` | `{field.default}` | {_values(hints[field.name])} | "
                f"{_escaped(sentences[field.name])} |"
                for field in dataclasses.fields(cls)
                if not dataclasses.is_dataclass(hints[field.name])  # it has a table of its own
            ),
        ]


class PresetTable(_TableDirective):
    """The settings in which the presets of an algorithm differ, on the environments given."""

    required_arguments = 1
    final_argument_whitespace = True

    def markdown(self) -> list[str]:
        from ppo_dice.presets import preset, preset_names
        from ppo_dice.settings import settings_by_option

        algorithm, *environments = self.arguments[0].split()
        columns = {
            f"`{name}`" if len(environments) == 1 else f"`{name}`, {env}": settings_by_option(
                preset(algorithm, env, name)
            )
            for env in environments
            for name in (preset_names(algorithm) if env == environments[0] else ("default",))
        }
        settings = next(iter(columns.values()))
        differing = [name for name in settings if len({str(column[name]) for column in columns.values()}) > 1]
        return [
            f"| setting | {' | '.join(columns)} |",
            "|---" * (len(columns) + 1) + "|",
            *(
                f"| `{name}` | {' | '.join(f'`{column[name]}`' for column in columns.values())} |"
                for name in differing
            ),
        ]


def field_sentences(cls: type[Any]) -> dict[str, str]:
    """The string under each field of a dataclass, which is also the command line's help."""
    body = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: ast.literal_eval(sentence.value)
        for field, sentence in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(sentence, ast.Expr)
    }


def _values(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if any(get_origin(part) is Literal for part in get_args(hint)):  # a number or a word
        return ", ".join(map(_values, get_args(hint)))
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return _escaped(text.replace("NoneType", "None"))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*O", "\\*O").replace("*", "\\*").replace("_", "\\_")


def plain_bars(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings write π(·|s); to reStructuredText a bar would begin a substitution."""
    for number, line in enumerate(lines):
        parts = line.split("`")  # every second one is code
        lines[number] = "`".join(part if k % 2 else _escaped_bars(part) for k, part in enumerate(parts))


def _escaped_bars(text: str) -> str:
    return text.replace("|", "\\|").replace("*O", "\\*O")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", plain_bars)
    app.add_directive("config-table", ConfigTable)
    app.add_directive("preset-table", PresetTable)
    return {"parallel_read_safe": True}
