"""``edpbrl demo``."""

from __future__ import annotations

import functools
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import bullet, output, quiet_libraries, shown
from edpbrl_gym.experiments.settings import DemoSettings

__all__ = ["Demo", "run"]


@dataclass(frozen=True)
class Demo:
    """The main job in a minute: twenty questions, a simulated user answers, write prompts that they like."""

    settings: OmitArgPrefixes[DemoSettings]
    out: Path | None = None
    """Run folder (None: runs/demo, or runs/demo-HASH of settings that are not the defaults)."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        return [*encoder_needs(self.settings.encoder), *experiment_needs("demo")]


def run(options: Demo) -> None:
    """Run the demo and print its steps."""
    start = time.monotonic()
    from rich.rule import Rule
    from rich.text import Text

    from edpbrl_gym.experiments.demo import run_demo
    from edpbrl_gym.experiments.demo_report import demo_verdict, prompts_table
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
        f'likes "{settings.text}" and cannot say so. They only pick the best of {settings.num_options} prompts.',
    )
    out = options.out or _default_folder(settings)
    results = run_demo(settings, out, say=functools.partial(_tell, console), progress=True)
    files = write_report(results, out)
    console.print()
    best = results.table[results.table["part"] == "best"]
    for number, agent in enumerate(dict.fromkeys(best["agent"])):
        console.print(prompts_table(results, agent, 3 if number else 10).rich())  # all are in the report
        console.print()
    for line in demo_verdict(results):
        console.print(f" {line}")
    console.print()
    console.print(f" Done in {time.monotonic() - start:.0f} s.")
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


def _tell(console: Any, step: str, facts: dict[str, Any]) -> None:
    if step == "vocabulary":
        text = (
            f"{facts['train'] + facts['test']} tokens in {len(facts['steps'])} steps ({', '.join(facts['steps'])}); "
            f"questions use {facts['train']}, the other {facts['test']} are kept for the final prompts."
        )
    elif step == "features":
        text = f"every token as a vector of {facts['dimension']} numbers ({facts['encoder']})."
    else:
        how = ", one after the other, each chosen by the answers before it" if facts["agent"] == "Adaptive" else ""
        note = "" if facts["converged"] else " (the estimate has not converged)"
        text = f"{facts['questions']} {facts['agent']} questions answered{how}{note}."
    bullet(console, step.capitalize(), text)
    if step == "questions" and facts["agent"] == "Adaptive":
        _show_example(console, facts)


def _show_example(console: Any, facts: dict[str, Any]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding("The last one, with its answer:", (0, 0, 0, 14)), style="dim")
    for number, text in enumerate(facts["example"]):
        chosen = number == facts["chosen"]
        shown = Text(f"{'>' if chosen else ' '} {text}", style="bold" if chosen else "dim")
        console.print(Padding(shown, (0, 0, 0, 14)))
