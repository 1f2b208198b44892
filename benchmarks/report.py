"""Raw turns → Markdown. Ratios are taken within each round, then their median."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import task

Turns = dict[str, list[dict[str, float]]]

TARGET_ONE, TARGET_MANY, TARGET_SHARE, TARGET_COLD, TARGET_HELP = 3.5, 8.0, 0.75, 15.0, 1.0
DICE_TARGET_ONE, DICE_TARGET_MANY = 1.8, 4.0
OURS_ONE, OURS_MANY = "ours_1", f"ours_{task.N_SEEDS}"


def markdown(measured: dict[str, Any]) -> str:
    """The whole report."""
    turns, machine = measured["turns"], measured["machine"]
    n_rounds = len(turns[OURS_ONE])
    versions = {package: v for found in measured["versions"].values() for package, v in found.items()}
    return f"""\
# Speed

PPO on {task.ENV_ID}: {task.N_STEPS} steps an iteration, {task.N_EPOCHS} epochs of {task.N_MINIBATCHES} \
minibatches, observations and rewards normalised.
Medians of {n_rounds} interleaved iterations after warm-up (least–most); ratios are taken within each round.

* Command: `{measured["command"]}` ({measured["date"]})
* Machine: {machine["cpu"]}, {machine["cores"]} cores, {machine["system"]} {machine["machine"]}; \
load before {measured["load_before"]:.1f}
* Versions: Python {machine["python"]}, {", ".join(f"{name} {versions[name]}" for name in sorted(versions))}

## Whole iterations: collection and update

{_whole_iterations(turns)}

## Where the time of an iteration goes, in milliseconds

{_parts(turns)}

*rest* is storing, drawing noise and metrics; the peers do not tell env, act and rest apart. Compilation
happens once, before these iterations: see below.

## Collection and update by themselves

{_stages(turns)}

## PPO-DICE

K is the number of discriminator steps before each gradient step of the policy. The ratio is to plain PPO of
Stable-Baselines3; learning is compared with that of our own PPO with as many seeds.

{_dice(turns)}

## Waiting, in seconds

{_waits(measured["waits"])}
"""


def _whole_iterations(turns: Turns) -> str:
    base = _best(turns, "sb3_")
    names = {
        base: f"Stable-Baselines3, {_threads(base)} (the faster of 1 and 2)",
        "sb3_every_core": "Stable-Baselines3, one run per core at once",
        "sbx": "SBX (Stable-Baselines3 in JAX)",
        OURS_ONE: "ours, one seed",
        "ours_1_gymnasium": "ours, one seed, in Gymnasium's environment instead of EnvPool's",
        OURS_MANY: f"ours, {task.N_SEEDS} seeds at once",
    }
    targets = {OURS_ONE: f"≥ {TARGET_ONE:g}", OURS_MANY: f"≥ {TARGET_MANY:g}"}
    return _table(
        ("", "steps/s", "ratio to the first", "target"),
        (
            (title, _count(_speeds(turns[name])), _ratio(turns, name, base), targets.get(name, ""))
            for name, title in names.items()
        ),
    )


def _parts(turns: Turns) -> str:
    columns = ("collect", "env", "act", "rest", "learn")
    names = {
        _best(turns, "sb3_"): "Stable-Baselines3",
        "sbx": "SBX",
        OURS_ONE: "ours, one seed",
        "ours_1_gymnasium": "ours, one seed, Gymnasium's environment",
        OURS_MANY: f"ours, {task.N_SEEDS} seeds",
    }

    def row(name: str) -> Iterable[str]:
        for column in columns:
            values = [part for turn in turns[name] if (part := _part(turn, column)) is not None]
            yield f"{1000 * median(values):.1f}" if values else "–"

    return _table(
        ("", "collect", "= env", "+ act", "+ rest", "learn"),
        ((title, *row(name)) for name, title in names.items()),
    )


def _part(turn: dict[str, float], name: str) -> float | None:
    if name == "rest":
        return turn["collect"] - turn["env"] - turn["act"] if "env" in turn else None
    return turn.get(name)


def _stages(turns: Turns) -> str:
    base, pool = _best(turns, "sb3_"), _best(turns, "envpool_")
    copies = task.N_SEEDS

    def row(title: str, name: str, stage: str, compared: str, target: str = "") -> Sequence[str]:
        ratios = _within_rounds(_speeds(turns[name], stage), _speeds(turns[compared], stage))
        return title, _count(_speeds(turns[name], stage)), _spread(ratios, ".2f"), target

    pools = [name for name in turns if name.startswith("envpool_")]
    return _table(
        ("", "steps/s", "ratio", "target"),
        [
            *(row(f"EnvPool alone, {copies} copies, {_threads(p)}", p, "collect", pool) for p in pools),
            row(
                f"our collection, {copies} seeds (to EnvPool at its best)",
                OURS_MANY,
                "collect",
                pool,
                f"≥ {TARGET_SHARE:g}",
            ),
            row("Stable-Baselines3, collection", base, "collect", base),
            row("SBX, collection", "sbx", "collect", base),
            row("our collection, one seed", OURS_ONE, "collect", base),
            row("Stable-Baselines3, update", base, "learn", base),
            row("SBX, update", "sbx", "learn", base),
            row("our update, one seed", OURS_ONE, "learn", base),
            row(f"our update, {copies} seeds", OURS_MANY, "learn", base),
        ],
    )


def _dice(turns: Turns) -> str:
    base = _best(turns, "sb3_")

    def row(name: str) -> Sequence[str]:
        _, form, steps, n_seeds = name.split("_")
        own = turns[f"ours_{n_seeds}"]
        learn = [1000 * turn["learn"] for turn in turns[name]]
        relative = _within_rounds([turn["learn"] for turn in turns[name]], [turn["learn"] for turn in own])
        target = DICE_TARGET_ONE if n_seeds == "1" else DICE_TARGET_MANY
        return (
            f"{form} form, K = {steps[1:]}, {n_seeds} {'seed' if n_seeds == '1' else 'seeds'}",
            _count(_speeds(turns[name])),
            _ratio(turns, name, base),
            f"≥ {target:g}" if (form, steps) == ("difference", "k5") else "",
            _spread(learn, ".0f"),
            _spread(relative, ".1f"),
        )

    return _table(
        ("", "steps/s", "ratio to SB3's PPO", "target", "learning, ms", "to our PPO's learning"),
        (row(name) for name in turns if name.startswith("dice_")),
    )


def _waits(waits: list[dict[str, float]]) -> str:
    def of(name: str) -> str:
        return _spread([wait[name] for wait in waits], ".2f")

    return _table(
        ("", "seconds", "target"),
        [
            (
                "process start to the end of the first update, compilation cache empty",
                of("cold_first_update"),
                f"≤ {TARGET_COLD:g}",
            ),
            ("… of which compilation", of("cold_compile"), ""),
            ("the same with a full compilation cache", of("warm_first_update"), ""),
            ("… of which loading what was compiled", of("warm_compile"), ""),
            (
                "the whole command of one iteration, cache empty, model and picture included",
                of("cold_whole"),
                "",
            ),
            ("… cache full", of("warm_whole"), ""),
            ("`ppo-dice --help`", of("help"), f"≤ {TARGET_HELP:g}"),
        ],
    )


def _best(turns: Turns, prefix: str) -> str:
    """The fastest of the contestants that differ in their number of threads."""
    candidates = [name for name in turns if name.startswith(prefix) and name.endswith("_threads")]
    return max(candidates, key=lambda name: median(_speeds(turns[name])))


def _speeds(turns: list[dict[str, float]], stage: str = "seconds") -> list[float]:
    return [turn["steps"] / turn[stage] for turn in turns]


def _ratio(turns: Turns, name: str, base: str) -> str:
    return _spread(_within_rounds(_speeds(turns[name]), _speeds(turns[base])), ".2f")


def _within_rounds(values: list[float], base: list[float]) -> list[float]:
    return [value / reference for value, reference in zip(values, base)]


def _count(values: list[float]) -> str:
    return _spread(values, ",.0f")


def _spread(values: list[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def _threads(name: str) -> str:
    number = name.split("_")[1]
    return f"{number} thread" if number == "1" else f"{number} threads"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
