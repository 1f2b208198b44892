"""Settings by the names that people type: `gae_lambda`, or `dice.coefficient` of a config within a config."""

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from ppo_dice.errors import UserError

_WORDS = {"true": True, "false": False}


def settings_by_option(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting by the name of its option; those of a config within the config follow its name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        found |= (
            settings_by_option(value, f"{prefix}{field.name}.")
            if dataclasses.is_dataclass(value)
            else {prefix + field.name: value}
        )
    return found


def flat_settings(config: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their full names, of a mapping in which a dict stands for a config within the config."""
    return {
        name if dataclasses.is_dataclass(value) and hasattr(config, name) else full_name(config, name): value
        for name, value in _flat(settings)
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def with_settings(config: Any, values: Mapping[str, Any]) -> Any:
    """The config with other values, by their full names; what they may be is checked all together."""
    own = {name: value for name, value in values.items() if "." not in name}
    for part in dict.fromkeys(name.partition(".")[0] for name in values if "." in name):
        inside = {
            name.removeprefix(f"{part}."): value
            for name, value in values.items()
            if name.startswith(f"{part}.")
        }
        own[part] = with_settings(own.get(part, getattr(config, part)), inside)
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
    return dataclasses.replace(config, **plain)


def full_name(config: Any, name: str) -> str:
    """The name of a setting, which may be written with dashes; an unknown one is told the nearest."""
    known, wanted = settings_by_option(config), name.replace("-", "_")
    if wanted in known:
        return wanted
    last_parts = {option.rpartition(".")[2]: option for option in reversed(known)}
    near = difflib.get_close_matches(wanted, [*known, *last_parts], n=1)
    hint = f"; did you mean {last_parts.get(near[0], near[0])}?" if near else "."
    raise UserError(f"{type(config).__name__} has no setting {name}{hint}")


def read_value(config: Any, name: str, text: str) -> Any:
    """The value that a text means for a setting: 0.9, adaptive, None, true, or 64x64 for a tuple."""
    hint = _hint(config, name)
    kinds = (hint,) if typing.get_origin(hint) in (None, tuple, Literal) else typing.get_args(hint)
    for kind in kinds:
        try:
            return _read(kind, text.strip())
        except ValueError:
            continue
    near = difflib.get_close_matches(text, [word for kind in kinds for word in _words(kind)], n=1)
    hint_text = f"; did you mean {near[0]}?" if near else "."
    raise UserError(f"{name} must be {_description(kinds)}, but is {text!r}{hint_text}")


def read_sweep(config: Any, texts: Iterable[str]) -> dict[str, Any]:
    """What `NAME=VALUE,VALUE,…` from a command line means: settings, and the values of each."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UserError(f"--sweep takes NAME=VALUE,VALUE,…, e.g. gae_lambda=0.9,0.95, but is {text!r}.")
        name = full_name(config, name.strip())
        if name in found:
            raise UserError(f"{name} is swept twice; give all its values in one --sweep.")
        found[name] = [read_value(config, name, value) for value in values.split(",")]
    return found


def value_text(value: Any) -> str:
    """How `read_value` takes a value."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _hint(config: Any, name: str) -> Any:
    part, _, rest = name.partition(".")
    return _hint(getattr(config, part), rest) if rest else typing.get_type_hints(type(config))[part]


def _read(kind: Any, text: str) -> Any:
    if typing.get_origin(kind) is tuple:
        return tuple(_read(typing.get_args(kind)[0], part) for part in text.split("x") if text)
    if kind is bool and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if kind in (int, float, str):
        return kind(text)
    if text in _words(kind):
        return None if kind is type(None) else text
    raise ValueError(text)


def _words(kind: Any) -> tuple[str, ...]:
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return ("None",) if kind is type(None) else ()


def _description(kinds: tuple[Any, ...]) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false"}
    parts = [
        "whole numbers such as 64x64" if typing.get_origin(kind) is tuple else names.get(kind)
        for kind in kinds
    ]
    return " or ".join(part or " or ".join(_words(kind)) for part, kind in zip(parts, kinds))
