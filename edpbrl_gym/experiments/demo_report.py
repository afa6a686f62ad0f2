"""The report of the demo: how fast the taste is learnt, and the best prompts against random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import provenance_section
from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.reporting.figures import GREY, legend, look, new_figure, set_title
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["counted_best", "demo_figure", "demo_verdict", "make_report", "share_below"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl demo`."""
    config, table = results.config, results.table
    best = table[table["part"] == "best"]
    sections: list[Section] = [
        Text([f'Simulated user: "{config["text"]}" ({UserSettings(config["mode"], config["scale"]).label})']),
        Text(bullets(demo_verdict(results))),
        Picture("demo", "The demo", demo_figure(table, text=config["text"], questions=config["questions"])),
    ]
    for agent in dict.fromkeys(best["agent"]):
        rows = [
            (f"{row.true_score:.3f}", share_below(row.percentile), row.prompt)
            for row in best[best["agent"] == agent].itertuples()
        ]
        title = f"Best prompts after {agent} questions"
        sections.append(TextTable(title, ("true score", "better than", "prompt"), rows, words=3))
    return Report("Demo", [*sections, provenance_section(results)])


def demo_verdict(results: Results) -> list[str]:
    """Closing lines of the demo, from the numbers."""
    questions = int(results.config["questions"])
    best = results.table[results.table["part"] == "best"]
    agents = list(dict.fromkeys(best["agent"]))
    mean = best.groupby("agent")["true_score"].mean()
    percentile = best.groupby("agent")["percentile"].mean()
    last, plain = (_last_errors(results.table, part) for part in ("curve", "plain curve"))
    population = results.table.loc[results.table["part"] == "population", "true_score"]
    ceiling = results.table.loc[results.table["part"] == "ceiling", "true_score"]
    lines = [
        f"{len(population)} random prompts score {population.mean():.3f} on average, the luckiest "
        f"{population.max():.3f}; the {_scoring(ceiling)}, found with the taste known exactly."
    ]
    lines += [
        f"{agent} questions: after {questions} question{'s' * (questions != 1)} the "
        f"{_scoring(best.loc[best['agent'] == agent, 'true_score'])}, better than {share_below(percentile[agent])} of "
        f"the random prompts; of two random prompts the learnt taste prefers the wrong one in {last[agent]:.1%} of all "
        "cases."
        for agent in agents
    ]
    random = agents[-1]
    lines.append(
        f"With the paper's estimate (ridge with lambda = 100: all directions count the same) the same answers to "
        f"{random} questions prefer the wrong one in {plain[random]:.1%}."
    )
    first, *rest = sorted(agents, key=lambda agent: -mean[agent])
    leads = {agent: mean[first] - mean[agent] for agent in rest}
    if min(leads.values()) < 5e-4:
        comparison = f"neither {first} nor {rest[0]} questions led to better prompts"
    else:
        by = ", ".join(f"{lead:.3f} above {agent}" for agent, lead in leads.items())
        comparison = f"{first} questions led to the best prompts, {by}"
    lines.append(f"This time {comparison}. One user, one run: `edpbrl bench first-answers` compares them over many.")
    return lines


def _last_errors(table: Any, part: str) -> dict[str, float]:
    """The last preference error of each agent."""
    curve = table[table["part"] == part].sort_values("questions")
    return {str(agent): float(error) for agent, error in curve.groupby("agent")["preference_error"].last().items()}


def share_below(percentile: float) -> str:
    """A percentile among the random prompts: "all" only if none is better, else rounded down."""
    return "all" if percentile >= 100.0 else f"{np.floor(10.0 * percentile) / 10.0:.1f}%"


def _scoring(scores: Any) -> str:
    single = len(scores) == 1
    return (
        f"{counted_best(len(scores))} score{'s' if single else ''} {scores.mean():.3f}{'' if single else ' on average'}"
    )


# -- the figure -------------------------------------------------------------------------------------------------------

_NUMBERS = ("", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def counted_best(count: int) -> str:
    """The number of prompts in words: "ten best prompts", "two best prompts", "best prompt"."""
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} best prompts" if count != 1 else "best prompt"


def demo_figure(table: Any, *, text: str, questions: int) -> Figure:
    """Draw the demo: how fast the taste is learnt, and the scores of the best prompts among random ones.

    Args:
        table: Rows with ``part`` "curve", "plain curve", "population", "best" and "ceiling".
        text: The taste in words.
        questions: How many were answered.
    """
    with new_figure(9.6, 4.2) as figure:
        curves_axis, scores_axis = figure.subplots(1, 2, width_ratios=(1, 1.5))
        agents = list(dict.fromkeys(table[table["part"] == "best"]["agent"]))
        _demo_curves(curves_axis, table, agents)
        _demo_scores(scores_axis, table, agents)
        legend(figure)  # the agents are in both panels, in the same colours
        set_title(figure, f'Simulated user: "{text}", {questions} questions')
    return figure


def _demo_curves(axis: Any, table: Any, agents: list[str]) -> None:
    for number, agent in enumerate(agents):
        rows = table[(table["part"] == "curve") & (table["agent"] == agent)].sort_values("questions")
        axis.plot(
            rows["questions"], 100 * rows["preference_error"], color=look(number).colour, linestyle=look(number).line,
            marker=look(number).marker, markersize=4.5, label=f"{agent} questions",
        )  # fmt: skip
    plain = table[(table["part"] == "plain curve") & (table["agent"] == agents[-1])].sort_values("questions")
    axis.plot(
        plain["questions"], 100 * plain["preference_error"], color=GREY, linestyle=":", marker="x", markersize=4.5,
        label=f"{agents[-1]} questions, the paper's estimate (ridge, lambda = 100)",
    )  # fmt: skip
    axis.set(xlabel="questions answered", ylabel="wrong preferences (%)", title="Learning the taste")
    axis.set_xticks(sorted(set(plain["questions"])))
    axis.set_ylim(bottom=0)


def _demo_scores(axis: Any, table: Any, agents: list[str]) -> None:
    population = table[table["part"] == "population"]["true_score"].to_numpy(dtype=float)
    axis.yaxis.get_major_locator().set_params(integer=True)  # prompts are whole
    counts, _, _ = axis.hist(population, bins=20, color="#c8c8c8", label=f"{len(population)} random prompts")
    largest = 0
    for number, agent in enumerate(agents):
        scores = table[(table["part"] == "best") & (table["agent"] == agent)]["true_score"].to_numpy(dtype=float)
        largest = max(largest, len(scores))
        height = counts.max() * (0.2 + 0.2 * number)
        axis.plot(
            scores, np.full(len(scores), height), linestyle="none", color=look(number).colour,
            marker=look(number).marker,
            markersize=6, alpha=0.8,
        )  # fmt: skip
    ceiling = table[table["part"] == "ceiling"]["true_score"]
    label = f"{'mean of the ' if len(ceiling) > 1 else ''}{counted_best(len(ceiling))}, taste known"
    axis.axvline(ceiling.mean(), color="#000000", linestyle=":", linewidth=1.2, label=label)
    best = counted_best(largest)
    axis.set(
        xlabel="true score (cosine to the taste)",
        ylabel="random prompts",
        title=f"{best[0].upper()}{best[1:]}, from words never asked about",
    )
