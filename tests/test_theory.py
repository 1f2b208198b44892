"""The laboratory: every experiment shows what it claims, at a small size, and the report shows it."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ppo_dice import cli
from ppo_dice.errors import UserError
from ppo_dice.reports.theory import SECTIONS, build_report, summary
from ppo_dice.tabular import performance_bounds
from ppo_dice.theory import EXPERIMENTS, laboratory
from ppo_dice.theory.accuracy import accuracy
from ppo_dice.theory.bias import bias
from ppo_dice.theory.episode_ends import GAMMA, corridor, episode_ends, make_treatments
from ppo_dice.theory.horizon import horizon, policies_apart
from ppo_dice.theory.improvement import improvement
from ppo_dice.theory.network import network
from ppo_dice.theory.pairs import gaussian_pair, tabular_pair
from ppo_dice.theory.sandwich import sandwich_ends
from ppo_dice.theory.score_function import VERSIONS, score_function, score_gradient, true_gradient

ROOT = Path(__file__).parents[1]
SMALL = {
    "horizon": partial(horizon, gammas=(0.5, 0.95), n_pairs=5),
    "improvement": partial(improvement, n_problems=8, levels=51, iterations=60),
    "sandwich": partial(sandwich_ends, gammas=(0.5, 0.95), n_pairs=60),
    "accuracy": partial(accuracy, distances=(0.003, 0.1), n_mdps=1, n_rollouts=8, n_steps=1024),
    "bias": partial(bias, steps=(256, 512), ridges=(1e-3, 1e-5), n_mdps=1, n_rollouts=6),
    "network": partial(network, distances=(0.01, 0.1), n_rollouts=4, tasks=("Pendulum-v1",), iterations=4),
    "episode_ends": partial(episode_ends, n_updates=1500),
    "score_function": partial(score_function, levels=(0.0, 1.0, 2.0), n_mdps=4),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A laboratory of small experiments, reported."""
    out = tmp_path_factory.mktemp("laboratory") / "theory"
    lines = []
    laboratory.run(out, lines.append, SMALL)
    assert lines[0] == "1 of 8  horizon"
    build_report(out)
    return out


@pytest.fixture(scope="module")
def results(folder):
    return json.loads((folder / "theory.json").read_text())["experiments"]


def test_every_experiment_is_done_and_reported():
    assert list(EXPERIMENTS) == list(SMALL) == list(SECTIONS)


# --- What each experiment shows ------------------------------------------------------------------------


def test_only_the_bound_on_action_probabilities_grows_with_the_horizon(results):
    for rows in results["horizon"]["families"].values():
        short, long = ({name: np.array(values) for name, values in row.items()} for row in rows)
        for row, factor in ((short, 1), (long, 19)):
            assert (row["needed"] <= row["span"] + 1e-6).all()
            assert (row["span"] <= row["states"] + 1e-6).all()
            assert (row["states"] <= row["state_actions"] + 1e-6).all()
            assert (row["state_actions"] <= row["kl"] + 1e-6).all()
            assert (row["states"] <= row["actions"] + 1e-6).all()
            assert (row["actions"] <= factor * 0.1 + 1e-6).all()
        assert np.median(long["actions"]) > 10 * np.median(short["actions"])
        assert np.median(long["kl"]) < 1.5 * np.median(short["kl"])
        assert np.median(short["actions"]) < np.median(short["kl"])  # as the page says


def test_the_advantage_in_the_proof_of_the_bound_belongs_to_the_new_policy():
    # The appendix prints |E_{a~π} A^π|, which is zero in every state: J(π') ≥ L(π') would be a bound.
    pair = tabular_pair(0, 0.1, deterministic=False)
    np.testing.assert_allclose((pair.old * pair.mdp.values(pair.old).A).sum(-1), 0, atol=1e-12)
    pairs = [tabular_pair(seed, 0.1, deterministic=False) for seed in range(10)]
    bounds = [performance_bounds(pair.mdp, pair.new, pair.old) for pair in pairs]
    assert any(one.J_new < one.surrogate - 1e-3 for one in bounds)


def test_policies_are_as_far_apart_as_asked():
    mdp = tabular_pair(0, 0.0, deterministic=True).mdp
    new, old = policies_apart(mdp, 0.1, seed=3)
    np.testing.assert_allclose(np.abs(new - old).sum(-1), 0.1)
    np.testing.assert_allclose(new.sum(-1), 1)


def test_cautious_updates_never_step_back_and_the_others_do(results):
    paths = results["improvement"]["paths"]
    by_name = {row["update"]: row for row in results["improvement"]["random"]}
    for name in ("CPI", "bound: states", "bound: KL", "bound: actions"):
        assert paths[name]["decreases"] == by_name[name]["decreases"] == 0
    for name in ("TRPO (δ = .01)", "PPO-clip (ε = .2)", "PPO-DICE (λ = .01)"):
        assert paths[name]["decreases"] > 10
    assert paths["bound: actions"]["iterations"] > 8 * paths["bound: states"]["iterations"]


def test_the_sandwich_holds_under_the_new_visitation_only(results):
    far, near = results["sandwich"]["rows"].values()
    assert min(row["plain_lower"]["failing"] for row in far) > 0.1
    for row in [*far, *near]:
        assert row["lower"]["failing"] == row["upper"]["failing"] == row["safe_upper"]["failing"] == 0
        assert max(row["lower"]["quantiles"]) <= 1 <= min(row["upper"]["quantiles"])


def test_the_averaged_difference_form_is_close_and_the_others_are_off_as_the_theory_says(results):
    ratio = {
        (point["system"], round(point["true"], 4), name): np.median(values) / point["true"]
        for point in results["accuracy"]["points"]
        for name, values in point["estimates"].items()
    }
    for (system, true, name), value in ratio.items():
        if name == "averaged":
            assert value == pytest.approx(1, abs=0.2), (system, true)
    assert ratio["gaussian", 0.1, "difference"] < 0.85
    for system in ("deterministic", "stochastic", "gaussian"):
        assert ratio[system, 0.1, "paper"] < 0.75
    assert ratio["deterministic", 0.003, "paper"] > 1.5  # it reads which actions were sampled


def test_the_points_lie_inside_their_sandwich(results):
    for point in results["accuracy"]["points"]:
        assert point["lower"] <= point["true"] <= point["upper"]


def test_the_paper_form_reads_what_its_discriminator_is_not_worth(results):
    same = [row for row in results["bias"]["by_steps"] if row["true"] == 0]
    for row in [*same, *results["bias"]["by_ridge"]]:
        assert np.abs(row["difference"]["estimates"]).max() < 1e-6
        assert np.abs(row["difference"]["values"]).max() < 1e-6
        assert min(row["paper"]["estimates"]) > 0 > max(row["paper"]["values"])
    some, little = (
        next(row["paper"] for row in results["bias"]["by_ridge"] if row["ridge"] == ridge)
        for ridge in (1e-3, 1e-5)
    )
    assert np.median(little["estimates"]) > np.median(some["estimates"])
    assert np.median(little["values"]) < np.median(some["values"])


def test_more_steps_bring_reading_and_worth_together(results):
    for form in ("difference", "paper"):
        gaps = {
            row["n_steps"]: np.median(row[form]["estimates"]) - np.median(row[form]["values"])
            for row in results["bias"]["by_steps"]
            if row["true"] > 0
        }
        assert gaps[256] > gaps[512] > 0


def test_the_naive_mask_drifts_and_the_literal_algorithm_is_not_zero(results):
    data = results["episode_ends"]
    masked, levels = data["values"]["naive mask"], data["levels"]["naive mask"]
    assert data["ending_share"] == pytest.approx(1 / 15, abs=1e-3)
    assert masked[-1] > -np.log1p(-data["ending_share"]) > 0
    assert masked[-1] - masked[-20] == pytest.approx(
        masked[-20] - masked[-39], rel=0.1
    )  # and no end in sight
    assert levels[-1] < levels[len(levels) // 2] < -0.5
    assert data["values"]["Algorithm 1"][-1] == pytest.approx(data["literal_supremum"], rel=0.01)
    assert data["literal_supremum"] > 0.01
    for name in ("restart", "absorbing", "absorbing-all"):
        assert np.abs(data["values"][name][-20:]).max() < 1e-4


def test_only_the_library_chains_are_consistent():
    mdp = corridor(5, GAMMA)
    pi = np.tile([0.3, 0.7], (6, 1))
    for name, treatment in make_treatments(mdp, pi).items():
        consistent = np.allclose(treatment.initial, treatment.weight @ treatment.residual, atol=1e-12)
        assert consistent == (name in ("restart", "absorbing", "absorbing-all")), name


def test_constants_reach_the_share_of_ends_under_the_naive_mask_and_other_g_go_beyond_any_limit():
    mdp = corridor(5, GAMMA)
    pi = np.tile([0.3, 0.7], (6, 1))
    naive = make_treatments(mdp, pi)["naive mask"]
    ends = (mdp.stationary(pi)[:, None] * pi * mdp.P[..., -1]).sum()

    def value(g):
        return naive.initial @ g - np.log(naive.weight @ np.exp(naive.residual @ g))

    assert value(np.full(12, -400.0)) == pytest.approx(-np.log1p(-ends), abs=1e-9)
    downhill = np.linalg.solve(naive.residual, -np.ones(12))  # a residual of −1 in every row
    # So log E exp is −c, the linear term −c times the share of discounted steps before the end.
    slope = value(downhill)
    assert 0 < slope < 1
    assert value(50 * downhill) == pytest.approx(50 * slope)


def test_the_printed_score_function_points_the_wrong_way_above_1_over_gamma(results):
    cosines = {name: np.array(rows) for name, rows in results["score_function"]["cosines"].items()}
    assert (cosines["printed"][:, 0] > 0.8).all()
    assert (cosines["printed"][:, 2] < -0.5).all()
    assert (cosines["two actions"] > 0.99).all()
    assert (cosines["baseline"] > 0.7).all()
    np.testing.assert_allclose(cosines["baseline"], cosines["baseline"][:, :1].repeat(3, 1), atol=1e-6)


def test_the_network_that_trains_finds_most_of_the_divergence(results):
    for point in results["network"]["points"]:
        ratio = {name: np.median(found) / point["true"] for name, found in point["estimates"].items()}
        assert ratio["known ratio"] > (0.75 if point["system"] == "nearly deterministic" else 0.5)
        assert ratio["known ratio"] < 1.15
    for readings in results["network"]["training"].values():
        assert len(readings) == 4
        assert all(0 <= row["lower"] <= row["upper"] for row in readings)
        assert all(row["estimate"] <= row["upper"] for row in readings)


@pytest.fixture(scope="module")
def pair_and_g():
    pair = tabular_pair(1, 0.03, deterministic=True)
    return pair, pair.objective.optimum() + np.random.default_rng(0).normal(0.3, 0.1, pair.new.shape)


def test_the_true_gradient_is_the_finite_difference(pair_and_g):
    pair, g = pair_and_g
    expected = finite_difference(pair, "kl", lambda objective: objective.donsker_varadhan(g))
    np.testing.assert_allclose(true_gradient(pair, g), expected, atol=1e-9)
    np.testing.assert_allclose(true_gradient(pair, g + 7.0), expected, atol=1e-9)


def finite_difference(pair, divergence, value):
    """The gradient of a form of the objective with respect to the logits of π'."""
    chain = {"chain": "restart", "initial": pair.mdp.stationary(pair.old)}

    def value_at(logits):
        new = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return value(pair.mdp.objective(new, pair.old, divergence, **chain))

    logits, gradient = np.log(pair.new), np.zeros_like(pair.new)
    for place in np.ndindex(*logits.shape):
        step = np.zeros_like(logits)
        step[place] = 1e-5
        gradient[place] = (value_at(logits + step) - value_at(logits - step)) / 2e-5
    return gradient


def score(pi, s, a):
    """∇ log π(a|s) by the logits."""
    gradient = np.zeros_like(pi)
    gradient[s] = -pi[s]
    gradient[s, a] += 1
    return gradient


def initial_score_gradient(pair, g):
    """(1−γ) E_ρ,a~π'[g ∇log π'], which has one action in every version."""
    share = (1 - pair.mdp.gamma) * pair.objective.chain.initial[:, None] * pair.new * g
    return sum(share[s, a] * score(pair.new, s, a) for s, a in np.ndindex(*g.shape))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_score_gradients_are_their_plain_sums(version, pair_and_g):
    pair, g = pair_and_g
    gamma, chain, mu = pair.mdp.gamma, pair.objective.chain, pair.objective.old.mu
    value = (pair.new * g).sum(-1)
    found, total = np.zeros_like(g), 0.0
    for s, a in np.ndindex(*g.shape):
        after = int(chain.transition[s, a].argmax())
        for b in range(3):
            weight = np.exp(g[s, a] - gamma * g[after, b])
            total += mu[s, a] * pair.new[after, b] * weight
            for c in range(3) if version == "two actions" else [b]:
                luck = pair.new[after, c] if version == "two actions" else 1.0
                gain = g[after, c] - (value[after] if version == "baseline" else 0.0)
                found += mu[s, a] * pair.new[after, b] * luck * weight * gain * score(pair.new, after, c)
    expected = initial_score_gradient(pair, g) + gamma * found / total
    np.testing.assert_allclose(score_gradient(pair, g, version), expected, atol=1e-12)


def test_two_actions_are_unbiased_for_a_linear_weight_and_one_action_is_not(pair_and_g):
    # χ²: φ*'(x) = 1 + x/2, whose mean over the a' of x is its value at the mean of x. For KL it is eˣ, whose
    # mean is larger: there two actions are not exact.
    pair, g = pair_and_g
    gamma, chain, mu = pair.mdp.gamma, pair.objective.chain, pair.objective.old.mu
    expected = finite_difference(pair, "chi2", lambda objective: objective.paper(g))
    two, one = np.zeros_like(g), np.zeros_like(g)
    for s, a in np.ndindex(*g.shape):
        after = int(chain.transition[s, a].argmax())
        for b in range(3):
            residual = g[s, a] - gamma * g[after, b]
            assert residual > -2  # where φ*' is linear
            weight = mu[s, a] * pair.new[after, b] * (1 + residual / 2)
            one += weight * g[after, b] * score(pair.new, after, b)
            for c in range(3):
                two += weight * pair.new[after, c] * g[after, c] * score(pair.new, after, c)
    start = initial_score_gradient(pair, g)
    np.testing.assert_allclose(start + gamma * two, expected, atol=1e-9)
    assert np.abs(start + gamma * one - expected).max() > 1e-3


def test_pairs_are_as_far_apart_as_asked():
    for deterministic in (True, False):
        assert tabular_pair(5, 0.02, deterministic=deterministic).objective.exact == pytest.approx(0.02)
    assert tabular_pair(5, 0.0, deterministic=True).objective.exact == 0
    from ppo_dice.theory.pairs import OLD, SYSTEM

    assert SYSTEM.divergence(gaussian_pair(0.02), OLD).total == pytest.approx(0.02)
    with pytest.raises(ValueError, match="no step in this direction"):
        gaussian_pair(100.0)


def test_an_experiment_repeats_to_every_digit_that_is_written(results):
    again = SMALL["accuracy"]()
    for point, same in zip(results["accuracy"]["points"], again["points"], strict=True):
        for name, values in point["estimates"].items():
            np.testing.assert_allclose(values, same["estimates"][name], rtol=1e-5)


# --- Files, pictures and the page -----------------------------------------------------------------------


def test_the_file_says_what_was_done_with_what(folder):
    content = json.loads((folder / "theory.json").read_text())
    assert content["format_version"] == 1
    assert content["versions"]["jax"]
    assert set(content["seconds"]) == set(SMALL)
    assert all("sizes" in data for data in content["experiments"].values())
    assert all("n_" in " ".join(data["sizes"]) for data in content["experiments"].values())


def test_there_is_a_picture_of_every_experiment_and_a_page_that_holds_them(folder):
    page = (folder / "index.html").read_text()
    for name, module in SECTIONS.items():
        picture = (folder / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert 20_000 < len(picture) < 200_000
        assert f"<h2>{module.TITLE.replace(chr(39), '&#x27;')}</h2>" in page
    assert page.count("data:image/png;base64,") == page.count("<table>") == len(SECTIONS)
    assert "http" not in page  # nothing is fetched from elsewhere
    words = re.sub(r"base64,[^\"]*", "", page)
    assert not re.search(r"\b(nan|inf|None)\b", words)


def test_the_summary_is_a_sentence_for_each(folder):
    lines = summary(folder).splitlines()
    assert [line.partition(":")[0] for line in lines] == list(SECTIONS)
    assert all(line.endswith(".") and len(line) > 60 for line in lines)


def test_tables_are_rectangles(results):
    for name, module in SECTIONS.items():
        table = module.table(results[name])
        assert len(table.rows) >= 2
        assert all(len(row) == len(table.header) for row in table.rows), name


def test_a_report_needs_results(tmp_path):
    with pytest.raises(UserError, match=r"There is no .*theory.json; `ppo-dice theory` writes it"):
        build_report(tmp_path)


# --- The command ------------------------------------------------------------------------------------------


def test_the_command_runs_the_laboratory_and_says_where_the_page_is(results, tmp_path, capsys, monkeypatch):
    known = {name: partial(dict, data) for name, data in results.items()}
    monkeypatch.setattr("ppo_dice.theory.run", partial(laboratory.run, experiments=known))
    out = tmp_path / "deep" / "theory"
    assert cli.run(["theory", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "8 of 8  score_function" in text
    assert f"pictures, tables and what to see in them: {out / 'index.html'}" in text
    assert cli.run(["theory", "--out", str(out)]) == 2
    assert f"error: {out} already holds a theory.json; choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["/proc/theory", "/dev/null", "/dev/null/theory"])
def test_a_folder_that_cannot_be_written_is_refused(out, capsys):
    assert cli.run(["theory", "--out", out]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {out} cannot be written: ")
    assert error.count("\n") == 1


def test_help_needs_nothing_heavy():
    script = "import sys; from ppo_dice.cli import run\n"
    script += "try: run(sys.argv[1:])\nfinally: print(sorted(sys.modules))"
    for arguments in (["--help"], ["theory", "--help"]):
        result = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
        )
        assert "theory" in result.stdout
        for heavy in ("'jax'", "'matplotlib'", "'gymnasium'"):
            assert heavy not in result.stdout.splitlines()[-1]


# --- The page of the documentation -----------------------------------------------------------------------


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "theory.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) >= 10
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_the_page_shows_every_picture():
    page = (ROOT / "docs" / "theory.md").read_text()
    for name in SECTIONS:
        assert f"_static/theory/{name}.png" in page
        assert (ROOT / "docs" / "_static" / "theory" / f"{name}.png").stat().st_size < 150_000
