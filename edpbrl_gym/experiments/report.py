"""Figures and REPORT.md of the synthetic experiment and of the demo, from their results alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym.design.result import certified
from edpbrl_gym.experiments.figures import counted_best, demo_figure, learning_curves, save_figure
from edpbrl_gym.experiments.plus_minus import plus_minus
from edpbrl_gym.experiments.runs import Results, write_atomically
from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.experiments.summary import METRICS, agent_labels, curves, verdict

__all__ = ["answerings", "demo_verdict", "design_lines", "setting_line", "share_below", "write_demo", "write_synthetic"]


def _write(text: list[str], target: Path) -> Path:
    path = target / "REPORT.md"
    write_atomically(path, lambda name: name.write_text("\n".join(text) + "\n", encoding="utf-8"))
    return path


def answerings(results: Results) -> list[UserSettings]:
    """The ways of answering that a synthetic run holds, in their order."""
    pairs = results.table[["mode", "scale"]].drop_duplicates().itertuples(index=False)
    return [UserSettings(str(mode), float(scale)) for mode, scale in pairs]


def setting_line(results: Results) -> str:
    """The setting of a synthetic run in one line."""
    config = results.config
    estimation = config["estimation_regularization"]
    estimation = config["regularization"] if estimation is None else estimation
    return (
        f"{config['criterion']}-design, K = {config['num_options']}, H = {len(results.provenance['steps'])}, "
        f"design lambda = {config['regularization']:g}, estimate lambda = {estimation:g}, encoder "
        f"{results.provenance['encoder']}"
    )


def design_lines(results: Results) -> list[str]:
    """One line for each design, and each distinct warning below it."""
    lines = []
    for design in results.provenance["designs"]:
        sizes = "/".join(f"{size:.0f}" for size in design["support"])
        lines.append(
            f"{design['agent']}, T = {design['episodes']}: {design['criterion']}-design, "
            f"{_prior_of(design)}, {design['status'].replace('_', ' ')} after {design['iterations']} "
            f"iterations ({design['seconds']:.1f} s), efficiency at least {certified(design['efficiency'])}, gap "
            f"{design['relative_gap']:.2g} of the gain, effectively {sizes} tokens shown at the steps"
        )
        lines += [f"  warning: {message}" for message in design["warnings"]]
    return lines


def _prior_of(design: Mapping[str, Any]) -> str:
    given = design["regularization"]
    return "prior precision as given" if given is None else f"lambda = {given:g}"


def write_synthetic(results: Results, target: Path) -> list[Path]:
    """Write the learning curves (PNG and PDF) and REPORT.md of `edpbrl reproduce synthetic`; return the files."""
    table = results.table
    found = curves(table)
    agents = agent_labels(results.config)
    runs = int(table["run"].nunique())
    figures: list[Path] = []
    pictures = []
    for answering in answerings(results):
        name = "errors-argmax" if answering.mode == "argmax" else f"errors-sampled-{answering.scale:g}"
        figure = learning_curves(found, agents, answering, runs=runs, subtitle=setting_line(results))
        figures += save_figure(figure, target / "figures", name)
        pictures.append(f"![Errors against T, {answering.label}](figures/{name}.png)")
    sentences = [f"- {sentence}" for sentence in verdict(table, results.config)]
    text = [
        "# Synthetic users: designed against random questions",
        "",
        f"{runs} runs; {setting_line(results)}; {_sizes(results)}",
        "",
        "## What came out",
        "",
        '"Lower" means a paired difference over the runs of more than two standard errors (in brackets: the mean of '
        "the first named minus the second, ± its standard error; below 0 favours the first).",
        "",
        *sentences,
        "",
        "## Errors at the largest T",
        "",
        *_markdown(found, agents),
        "",
        f"`best chosen` is the share of questions in which the user's answer is the truly best of the "
        f"{results.config['num_options']} options: 1 for argmax, {1 / results.config['num_options']:.2f} for a user "
        "who guesses.",
        "",
        *_best_chosen(table),
        "",
        "## Figures",
        "",
        *pictures,
        "",
        "## Designs and their warnings",
        "",
        *[f"- {line}" if not line.startswith("  ") else f"  - {line.strip()}" for line in design_lines(results)],
        "",
        *_how_synthetic(results),
        *_provenance(results),
    ]
    return [*figures, _write(text, target)]


def _sizes(results: Results) -> str:
    known = results.provenance
    return (
        f"{sum(known['train_sizes'])} train and {sum(known['test_sizes'])} held-out tokens; preference error on "
        f"{known['pairs']} pairs of {known['prompts']} held-out prompts."
    )


def _markdown(found: Any, agents: list[str]) -> list[str]:
    last = found[found["episodes"] == found["episodes"].max()]
    lines = [f"| user | answers | metric | {' | '.join(agents)} |", f"|---|---|---|{'---|' * len(agents)}"]
    for (user, mode, scale), cell in last.groupby(["user", "mode", "scale"], sort=False):
        for metric, name in METRICS.items():
            values = [cell[cell["agent"] == agent].iloc[0] for agent in agents]
            cells = [plus_minus(row[f"{metric}_mean"], row[f"{metric}_sem"], ".3f") for row in values]
            lines.append(f"| {user} | {UserSettings(mode, scale).label} | {name} | {' | '.join(cells)} |")
    return lines


def _best_chosen(table: Any) -> list[str]:
    shares = table.groupby(["mode", "scale", "agent"], sort=False)["best_chosen"].mean()
    return [
        f"- {UserSettings(mode, scale).label}, {agent}: {share:.2f}" for (mode, scale, agent), share in shares.items()
    ]


def _how_synthetic(results: Results) -> list[str]:
    config = results.config
    designs = (
        "A design and new questions for every T (the objective has T in it)"
        if config["design_for"] == "each"
        else "One design for the largest T; a smaller T is the first T episodes of the same questions"
    )
    return [
        "## How it was done",
        "",
        f"- {designs}; Random plans nothing, its smaller T are the first T episodes of one sequence.",
        "- The train/test split, the held-out prompts and the designs are the same in all runs; questions and sampled "
        "answers are drawn anew in each.",
        "- All users of a run answer the same questions; theta* is the unit-norm embedding of the user's sentence: "
        + "; ".join(f'{name}: "{text}"' for name, text in config["users"].items())
        + ".",
        "- The paper states neither whether its users take the argmax or sample, nor at what scale: both are here.",
        f"- Estimates that did not converge: {int((~results.table['converged']).sum())} of {len(results.table)}.",
        "",
    ]


def _provenance(results: Results) -> list[str]:
    known, config = results.provenance, results.config
    sessions = known["sessions"]
    software = ", ".join(f"{name} {version}" for name, version in sessions[-1]["versions"].items())
    fingerprint = config.get("encoder_fingerprint") or known["encoder_fingerprint"]
    vocabulary = config.get("vocabulary_fingerprint") or known["vocabulary_fingerprint"]
    return [
        "## Provenance",
        "",
        f"- encoder {known['encoder']} (sha256 {fingerprint[:16]}), vocabulary sha256 {vocabulary[:16]}, seed "
        f"{config['seed']}",
        f"- begun {sessions[0]['begun']}, finished {known['finished']}, sessions: {len(sessions)}",
        f"- {software}",
    ]


def demo_verdict(results: Results) -> list[str]:
    """Closing lines of the demo, from the numbers."""
    best = results.table[results.table["part"] == "best"]
    agents = list(dict.fromkeys(best["agent"]))
    mean = best.groupby("agent")["true_score"].mean()
    percentile = best.groupby("agent")["percentile"].mean()
    curve = results.table[results.table["part"] == "curve"]
    last = curve[curve["episodes"] == curve["episodes"].max()].set_index("agent")["cosine_error"]
    plain = results.table[(results.table["part"] == "plain curve") & (results.table["agent"] == agents[-1])]
    population = results.table.loc[results.table["part"] == "population", "true_score"]
    ceiling = results.table.loc[results.table["part"] == "ceiling", "true_score"]
    lines = [
        f"{len(population)} random prompts score {population.mean():.3f} on average, the luckiest "
        f"{population.max():.3f}; the {_scoring(ceiling)}, found with the taste known exactly."
    ]
    lines += [
        f"{agent} questions: after {_plural(results.config['episodes'], 'episode')} the "
        f"{_scoring(best.loc[best['agent'] == agent, 'true_score'])}, better than {share_below(percentile[agent])} of "
        f"the random prompts (cosine error of the taste {last[agent]:.3f})."
        for agent in agents
    ]
    random = agents[-1]
    ridge = float(plain.sort_values("episodes")["cosine_error"].iloc[-1])
    prior_matters = ridge - last[random] > last.max() - last.min()
    opening = "The prior counts most: with" if results.config["prior"] != "ridge" and prior_matters else "With"
    lines.append(
        f"{opening} the paper's estimate (ridge with lambda = 100: all directions count the same) the same answers to "
        f"{random} questions give a cosine error of {ridge:.3f}."
    )
    first, *others = sorted(agents, key=lambda agent: -mean[agent])
    leads = {agent: mean[first] - mean[agent] for agent in others}
    if min(leads.values()) < 5e-4:
        led = f"neither {first} nor {others[0]} questions led to better prompts"
    else:
        by = ", ".join(f"{lead:.3f} above {agent}" for agent, lead in leads.items())
        led = f"{first} questions led to the best prompts, {by}"
    lines.append(f"This time {led}. One user, one run: `edpbrl bench queries` compares them over many.")
    return lines


def share_below(percentile: float) -> str:
    """A percentile among the random prompts: "all" only where none is better, else rounded down."""
    return "all" if percentile >= 100.0 else f"{np.floor(10.0 * percentile) / 10.0:.1f}%"


def _scoring(scores: Any) -> str:
    one = len(scores) == 1
    return f"{counted_best(len(scores))} score{'s' if one else ''} {scores.mean():.3f}{'' if one else ' on average'}"


def _plural(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def write_demo(results: Results, target: Path) -> list[Path]:
    """Write the figure (PNG and PDF) and REPORT.md of `edpbrl demo`; return the files."""
    config, table = results.config, results.table
    figure = demo_figure(table, text=config["text"], episodes=config["episodes"])
    figures = save_figure(figure, target / "figures", "demo")
    best = table[table["part"] == "best"]
    text = [
        "# Demo",
        "",
        f'Simulated user: "{config["text"]}" ({UserSettings(config["mode"], config["scale"]).label})',
        "",
    ]
    text += [f"- {line}" for line in demo_verdict(results)] + ["", "![The demo](figures/demo.png)", ""]
    for agent in dict.fromkeys(best["agent"]):
        text += [
            f"## Best prompts after {agent} questions",
            "",
            "| true score | better than | prompt |",
            "|---|---|---|",
        ]
        for row in best[best["agent"] == agent].itertuples():
            text.append(f"| {row.true_score:.3f} | {share_below(row.percentile)} | {row.prompt} |")
        text.append("")
    text += ["## The design", "", *[f"- {line.strip()}" for line in design_lines(results)], "", *_provenance(results)]
    return [*figures, _write(text, target)]
