"""``edpbrl demo``."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import bullet, output, quiet_libraries, shown
from edpbrl_gym.experiments.demo_settings import DemoSettings

__all__ = ["Demo", "run"]


# what a user does, for each format of the answers
_DONE = {"best": "pick the best", "partial": "name the three best", "ranking": "rank all"}


@dataclass(frozen=True)
class Demo:
    """The main job in a minute: twenty questions, a simulated user answers, write prompts that they like."""

    settings: OmitArgPrefixes[DemoSettings] = field(default_factory=DemoSettings)
    out: Path | None = None
    """Run folder (None: runs/demo, or runs/demo-HASH of settings that are not the defaults)."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        return [*encoder_needs(self.settings.encoder), *experiment_needs("demo")]


def run(options: Demo) -> None:
    """Run the demo and print its steps."""
    stages = _Stages()
    from rich.rule import Rule
    from rich.text import Text

    from edpbrl_gym.experiments.demo import run_demo
    from edpbrl_gym.experiments.demo_report import demo_verdict
    from edpbrl_gym.experiments.registry import write_report

    settings = options.settings
    quiet_libraries()
    console = output()
    console.print()
    console.print(Rule(Text("Learning a taste from a few questions", style="bold"), style="cyan"))
    console.print()
    bullet(
        console,
        "The user",
        f'likes "{settings.text}" and cannot say so. They only {_DONE[settings.answers]} of '
        f"{settings.num_options} prompts.",
    )
    out = options.out or _default_folder(settings)
    results = run_demo(settings, out, say=_Story(console, stages), progress=True)
    files = write_report(results, out)
    stages.end("report")
    console.print()
    _tables(console, results)
    for line in demo_verdict(results):
        console.print(f" {line}")
    console.print()
    console.print(f" Done in {stages}.")
    console.print(f" Figure: {shown(files[0])}, report: {shown(files[-1])}", soft_wrap=True)
    console.print(
        Text.assemble(
            " Your turn: ",
            ('edpbrl demo --text "..."', "bold"),
            " for another taste, ",
            ("edpbrl design --help", "bold"),
            " for your own vocabulary.",
        )  # fmt: skip
    )
    console.print()


def _default_folder(settings: DemoSettings) -> Path:
    """A folder for each setting, so that another taste doesn't use the folder of the last one."""
    if settings == DemoSettings():
        return Path("runs/demo")
    return Path(f"runs/demo-{hashlib.sha256(repr(settings).encode()).hexdigest()[:8]}")


class _Stages:
    """Duration of each part of the demo, from the end of the part before to its own end."""

    # while one core asks adaptive questions, the other one asks random ones
    _OF_STEP = {"vocabulary": "start", "estimate": "questions"}

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._seconds: dict[str, float] = {}

    def end(self, step: str) -> None:
        """Record the end of a part; parts of the same name add up."""
        now = time.monotonic()
        name = self._OF_STEP.get(step, step)
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._seconds.items())
        return f"{sum(self._seconds.values()):.0f} s ({parts})"


class _Story:
    """Prints each step of the demo as it is done."""

    def __init__(self, console: Any, stages: _Stages) -> None:
        self.console = console
        self.stages = stages

    def __call__(self, step: str, facts: dict[str, Any]) -> None:
        self.stages.end(step)
        if step == "vocabulary":
            text = (
                f"{facts['train'] + facts['test']} tokens in {len(facts['steps'])} steps "
                f"({', '.join(facts['steps'])}); questions use {facts['train']}, the other {facts['test']} "
                "are kept for the final prompts."
            )
            bullet(self.console, "Vocabulary", text)
        elif step == "features":
            bullet(
                self.console,
                "Features",
                f"every token as a vector of {facts['dimension']} numbers ({facts['encoder']}).",
            )
        elif step == "questions":
            self._questions(facts)
        elif step == "estimate":
            text = (
                f"{facts['agent']} questions: of two random prompts of the kept words the learnt taste prefers the "
                f"wrong one in {facts['preference_error']:.1%} of all cases."
            )
            bullet(self.console, "Estimate", text)
        elif step == "prompts":
            from edpbrl_gym.experiments.demo_report import counted_best

            *earlier, last = facts["agents"]
            text = (
                f"the {counted_best(facts['count'])} of the kept words, for what {', '.join(earlier)} and {last} "
                "questions taught."
            )
            bullet(self.console, "Prompts", text)

    def _questions(self, facts: dict[str, Any]) -> None:
        how = ", one after the other, each chosen by the answers before it" if facts["agent"] == "Adaptive" else ""
        note = "" if facts["converged"] else " (the estimate has not converged)"
        bullet(self.console, "Questions", f"{facts['questions']} {facts['agent']} questions answered{how}{note}.")
        if facts["agent"] != "Adaptive":
            return
        from rich.padding import Padding
        from rich.text import Text

        self.console.print(Padding("The last one, with its answer:", (0, 0, 0, 14)), style="dim")
        places = {option: place for place, option in enumerate(facts["order"], 1)}
        for number, text in enumerate(facts["example"]):
            place = places.get(number)
            mark = ">" if place and len(places) == 1 else str(place or " ")
            self.console.print(Padding(Text(f"{mark} {text}", style="bold" if place else "dim"), (0, 0, 0, 14)))


def _tables(console: Any, results: Any) -> None:
    from rich.table import Table

    from edpbrl_gym.experiments.demo_report import counted_best, share_below

    best = results.table[results.table["part"] == "best"]
    for number, agent in enumerate(dict.fromkeys(best["agent"])):
        shown_rows = best[best["agent"] == agent].head(10 if number == 0 else 3)  # all are in the report
        title = counted_best(len(shown_rows))
        table = Table(
            title=f"{title[0].upper()}{title[1:]} after {agent} questions, from words never asked about",
            title_justify="left",
        )
        table.add_column("#", justify="right")
        table.add_column("true score", justify="right")
        table.add_column("better than", justify="right")
        table.add_column("prompt")
        for row in shown_rows.itertuples():
            table.add_row(str(int(row.rank)), f"{row.true_score:.3f}", share_below(row.percentile), row.prompt)
        console.print(table)
        console.print()
