"""The report of the demo: how fast the tastes are learnt, and the posters that each way of asking would draw."""

from __future__ import annotations

import io
import math
import textwrap
from typing import TYPE_CHECKING, Any

from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import arm_curves, by_arm, difference, provenance_section
from edpbrl_gym.rendering.posters import PostersRenderer
from edpbrl_gym.reporting.figures import Panel, curves_figure, new_figure
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.statistics import PairedDifference, plural
from edpbrl_gym.reporting.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "OURS",
    "PAPER",
    "SHOWN",
    "TRUTH",
    "demo_figure",
    "demo_verdict",
    "make_report",
    "posters_figure",
    "users_table",
]

PAPER, OURS, TRUTH = "paper", "ours", "known"
_TITLES = {PAPER: "the paper's way", OURS: "edpbrl-gym", TRUTH: "taste known"}
SHOWN = 3  # users for whom prompts are written, and their posters drawn
_WIDTH = 30  # characters of a prompt below its poster


def make_report(results: Results) -> Report:
    """The report of `edpbrl demo`."""
    sections: list[Section] = [
        Text(bullets(demo_verdict(results))),
        Text(bullets(_ways(results)), "The two ways"),
        Picture("demo", "Wrong preferences against the questions answered", demo_figure(results)),
        Picture("demo-posters", "The poster that each way would draw", posters_figure(results)),
    ]
    return Report("Demo", [*sections, users_table(results), provenance_section(results)])


def _ways(results: Results) -> list[str]:
    config = results.config
    return [
        "The paper's way: the best of four partial prompts, one token longer at each question, from the paper's design "
        "(V criterion, lambda = 100); ridge estimate with lambda = 1.",
        f"edpbrl-gym: the best of {config['num_options']} complete prompts, chosen by the answers before; the default "
        "estimate.",
        "A user's taste is the embedding of their sentence, and they answer by the multinomial logit model, so they "
        "err at times.",
    ]


def users_table(results: Results) -> TextTable:
    """The wrong preferences at the end, for each user and each way of asking."""
    table = _ends(results)
    rows = [(user, *(f"{table.loc[user, way]:.1%}" for way in (PAPER, OURS))) for user in table.index]
    title = f"Wrong preferences after {plural(int(results.config['questions']), 'answer')}"
    return TextTable(title, ("who likes", _TITLES[PAPER], _TITLES[OURS]), rows, words=1)


def demo_verdict(results: Results) -> list[str]:
    """Closing lines of the demo, from the numbers; a difference within two standard errors is none."""
    ends, best = _ends(results), _of(results, "best")
    who = f"{len(ends)} simulated users" if len(ends) > 1 else "one simulated user"
    gap = difference(ends, PAPER, OURS)
    lines = [
        f"Of two random prompts, the learnt taste of {who} prefers the wrong one in {ends[PAPER].mean():.1%} of the "
        f"cases after {plural(int(results.config['questions']), 'answer')} to the paper's questions, in "
        f"{ends[OURS].mean():.1%} after as many to ours: {_said(gap, 'fewer', 'more')}."
    ]
    scores = by_arm(best, "way", "user", "percentile")
    ahead = difference(scores, OURS, PAPER)
    lines.append(
        f"The prompt that is then written for {'the first ' if len(scores) < len(ends) else ''}"
        f"{plural(len(scores), 'user')} is better for them than {scores[PAPER].mean():.1f}% of random prompts "
        f"(paper) and {scores[OURS].mean():.1f}% (ours): {_said(ahead, 'better', 'worse', points=True)}; the best that "
        f"is found with the taste known, than {scores[TRUTH].mean():.1f}%."
    )
    few = "One user is luck. " if len(ends) == 1 else ""
    lines.append(
        f"{few}Most of the difference comes from showing nine complete prompts and from the estimate; docs/"
        "first-answers.md takes it apart, over hundreds of runs, and docs/people.md has real people's answers."
    )
    return lines


def _said(gap: PairedDifference, if_positive: str, if_negative: str, *, points: bool = False) -> str:
    """A difference in words, with its standard error over users."""
    if gap.runs > 1 and not gap.clear:
        return "about the same, within two standard errors"
    mean, error = (value if points else 100 * value for value in (gap.mean, gap.error))
    words = f"{abs(mean):.1f} percentage points {if_positive if mean >= 0 else if_negative}"
    return f"{words} (standard error {error:.1f})" if gap.runs > 1 else words


def _of(results: Results, part: str) -> Any:
    return results.table[results.table["part"] == part]


def _ends(results: Results) -> Any:
    """Wrong preferences after all answers: a row for each user, a column for each way (DataFrame)."""
    curves = _of(results, "curve")
    return by_arm(curves[curves["answers"] == curves["answers"].max()], "way", "user", "wrong")


# -- the figures -------------------------------------------------------------------------------------------------------


def demo_figure(results: Results) -> Figure:
    """Draw the wrong preferences against the number of answers: means over the users, bands of one standard error."""
    curves = _of(results, "curve").assign(percent=lambda rows: 100 * rows["wrong"].astype(float))
    users = curves["user"].nunique()
    labels = {
        PAPER: "the paper's way: best of four partial prompts, ridge",
        OURS: f"edpbrl-gym: best of {results.config['num_options']} prompts, adaptive",
    }
    panel = Panel(arm_curves(curves, labels, "way", "answers", "user", "percent"), ylabel="wrong preferences (%)")
    band = f"Mean of {users} simulated users; bands: one standard error." if users > 1 else "One simulated user."
    return curves_figure(
        [panel], columns=1, xlabel="questions answered", title="Learning a taste", subtitle=band, size=(6.0, 3.4)
    )


def posters_figure(results: Results) -> Figure:
    """Draw posters of the prompts that each way of asking would write, users in rows."""
    import matplotlib.image

    best = _of(results, "best")
    users = list(dict.fromkeys(best["user"]))[:SHOWN]
    renderer = PostersRenderer(width=360, height=450)
    with new_figure(7.2, 3.35 * len(users), grid=False) as figure:
        axes = figure.subplots(len(users), len(_TITLES), squeeze=False)
        for line, user in zip(axes, users, strict=True):
            for axis, (way, title) in zip(line, _TITLES.items(), strict=True):
                [row] = best[(best["user"] == user) & (best["way"] == way)].itertuples()
                [drawn] = renderer.draw([row.prompt], [0])
                axis.imshow(matplotlib.image.imread(io.BytesIO(drawn.png)))
                axis.set_axis_off()
                axis.set_title(title, fontsize=9)
                share = "all" if row.percentile >= 100 else f"{math.floor(row.percentile)}% of"
                below = f"{textwrap.fill(row.prompt, _WIDTH)}\nbetter than {share} random prompts"
                axis.text(0.5, -0.02, below, transform=axis.transAxes, ha="center", va="top", fontsize=7)
            line[0].text(
                -0.16, 0.5, textwrap.fill(user, 32), transform=line[0].transAxes, rotation=90, ha="center",
                va="center", fontsize=8,
            )  # fmt: skip
    return figure
