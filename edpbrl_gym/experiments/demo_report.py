"""The report of the demo: how fast the taste is learnt, and the best prompts against random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import provenance_section
from edpbrl_gym.reporting.figures import GREY, Look, legend, look, new_figure, set_title
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.statistics import plural
from edpbrl_gym.reporting.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["counted_best", "demo_figure", "demo_verdict", "make_report", "prompts_table", "share_below"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl demo`."""
    config, table = results.config, results.table
    best = table[table["part"] == "best"]
    sections: list[Section] = [
        Text([f'Simulated user, who always takes the best option: "{config["text"]}"']),
        Text(bullets(demo_verdict(results))),
        Picture("demo", "The demo", demo_figure(table, text=config["text"], questions=config["questions"])),
    ]
    tables = [prompts_table(results, agent) for agent in dict.fromkeys(best["agent"])]
    return Report("Demo", [*sections, *tables, provenance_section(results)])


def prompts_table(results: Results, agent: str, most: int | None = None) -> TextTable:
    """The best prompts after the questions of an agent; ``most``: no more than so many of them."""
    table = results.table
    rows = table[(table["part"] == "best") & (table["agent"] == agent)].head(most or len(table))
    title = counted_best(len(rows))
    return TextTable(
        f"{title[0].upper()}{title[1:]} after {agent} questions, from words never asked about",
        ("prompt", "true score", "better than"),
        [(row.prompt, f"{row.true_score:.3f}", share_below(row.percentile)) for row in rows.itertuples()],
        words=1,
    )


def demo_verdict(results: Results) -> list[str]:
    """Closing lines of the demo, from the numbers."""
    questions = int(results.config["questions"])
    best = results.table[results.table["part"] == "best"]
    agents = list(dict.fromkeys(best["agent"]))
    mean = best.groupby("agent")["true_score"].mean()
    percentile = best.groupby("agent")["percentile"].mean()
    errors = results.table.sort_values("questions").groupby(["part", "agent"])["preference_error"].last()
    population = results.table.loc[results.table["part"] == "population", "true_score"]
    ceiling = results.table.loc[results.table["part"] == "ceiling", "true_score"]
    lines = [
        f"{len(population)} random prompts score {population.mean():.3f} on average, the luckiest "
        f"{population.max():.3f}; the {_scoring(ceiling)}, found with the taste known exactly."
    ]
    lines += [
        f"{agent} questions: after {plural(questions, 'question')} the "
        f"{_scoring(best.loc[best['agent'] == agent, 'true_score'])}, better than {share_below(percentile[agent])} of "
        f"the random prompts; of two of these the learnt taste prefers the wrong one in {errors['curve', agent]:.1%}."
        for agent in agents
    ]
    random = agents[-1]
    lines.append(
        f"With the paper's estimate (ridge with lambda = 100: all directions count the same) the same answers to "
        f"{random} questions prefer the wrong one in {errors['plain curve', random]:.1%}."
    )
    first, second = sorted(agents, key=lambda agent: -mean[agent])
    lead = mean[first] - mean[second]
    comparison = f"{first} questions led to the best prompts, {lead:.3f} above {second}"
    if lead < 5e-4:
        comparison = f"neither {first} nor {second} questions led to better prompts"
    lines.append(f"This time {comparison}. One user, one run: docs/first-answers.md compares them over many.")
    return lines


def share_below(percentile: float) -> str:
    """A percentile among the random prompts: "all" only if none is better, else rounded down."""
    return "all" if percentile >= 100.0 else f"{np.floor(10.0 * percentile) / 10.0:.1f}%"


def _scoring(scores: Any) -> str:
    verb, average = ("scores", "") if len(scores) == 1 else ("score", " on average")
    return f"{counted_best(len(scores))} {verb} {scores.mean():.3f}{average}"


# -- the figure -------------------------------------------------------------------------------------------------------

_NUMBERS = ("", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def counted_best(count: int) -> str:
    """The number of prompts in words: "ten best prompts", "two best prompts", "best prompt"."""
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} best prompts" if count != 1 else "best prompt"


def demo_figure(table: Any, *, text: str, questions: int) -> Figure:
    """Draw how fast the taste (a text) is learnt, and the scores of the best prompts among random ones."""
    with new_figure(9.6, 4.2) as figure:
        curves_axis, scores_axis = figure.subplots(1, 2, width_ratios=(1, 1.5))
        agents = list(dict.fromkeys(table[table["part"] == "best"]["agent"]))
        _demo_curves(curves_axis, table, agents)
        _demo_scores(scores_axis, table, agents)
        legend(figure)  # the agents are in both panels, in the same colours
        set_title(figure, f'Simulated user: "{text}", {questions} questions')
    return figure


def _demo_curves(axis: Any, table: Any, agents: list[str]) -> None:
    curves = [("curve", agent, f"{agent} questions", look(number)) for number, agent in enumerate(agents)]
    paper = f"{agents[-1]} questions, the paper's estimate (ridge, lambda = 100)"
    curves.append(("plain curve", agents[-1], paper, Look(GREY, ":", "x")))
    for part, agent, label, (colour, line, marker) in curves:
        rows = table[(table["part"] == part) & (table["agent"] == agent)].sort_values("questions")
        drawn = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4.5, "label": label}
        axis.plot(rows["questions"], 100 * rows["preference_error"], **drawn)
    axis.set(xlabel="questions answered", ylabel="wrong preferences (%)", title="Learning the taste")
    axis.set_xticks(sorted(set(rows["questions"])))
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
        drawn = {"color": look(number).colour, "marker": look(number).marker, "markersize": 6, "alpha": 0.8}
        axis.plot(scores, np.full(len(scores), height), linestyle="none", **drawn)
    ceiling = table[table["part"] == "ceiling"]["true_score"]
    label = f"{'mean of the ' if len(ceiling) > 1 else ''}{counted_best(len(ceiling))}, taste known"
    axis.axvline(ceiling.mean(), color="#000000", linestyle=":", linewidth=1.2, label=label)
    best = counted_best(largest)
    axis.set(
        xlabel="true score (cosine to the taste)",
        ylabel="random prompts",
        title=f"{best[0].upper()}{best[1:]}, from words never asked about",
    )
