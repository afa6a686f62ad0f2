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
    """Simulated users answer the paper's questions and ours: what is learnt, and the posters that they would get."""

    settings: OmitArgPrefixes[DemoSettings]
    out: Path | None = None
    """Run folder (None: runs/demo, or runs/demo-HASH of settings that are not the defaults)."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs
        from edpbrl_gym.rendering import renderer_needs

        return [
            *encoder_needs(self.settings.encoder),
            *experiment_needs("demo"),
            *renderer_needs("posters", "the posters of `edpbrl demo`"),
        ]


def run(options: Demo) -> None:
    """Run the demo and print its steps."""
    start = time.monotonic()
    from rich.rule import Rule
    from rich.text import Text

    from edpbrl_gym.experiments.demo import run_demo
    from edpbrl_gym.experiments.demo_report import demo_verdict, users_table
    from edpbrl_gym.experiments.registry import write_report

    settings = options.settings
    quiet_libraries()
    console = output()
    console.print()
    console.print(Rule(Text("Learning a taste from a few questions", style="bold"), style="cyan"))
    console.print()
    out = options.out or _default_folder(settings)
    results = run_demo(settings, out, say=functools.partial(_tell, console), progress=True)
    files = write_report(results, out)
    console.print()
    console.print(users_table(results).rich())
    console.print()
    for line in demo_verdict(results):
        console.print(f" {line}")
    console.print()
    console.print(f" Done in {time.monotonic() - start:.0f} s.")
    for name, file in (("Curves", "demo.png"), ("Posters", "demo-posters.png"), ("Report", "REPORT.md")):
        [path] = [path for path in files if path.name == file]
        console.print(f" {name}: {shown(path)}", soft_wrap=True)
    console.print(Text.assemble(" Your turn: ", ("edpbrl ask", "bold"), " learns yours from pictures."))
    console.print()


def _default_folder(settings: DemoSettings) -> Path:
    """A folder for each setting, so that another taste doesn't use the folder of the last one."""
    if settings == DemoSettings():
        return Path("runs/demo")
    return Path(f"runs/demo-{hashlib.sha256(repr(settings).encode()).hexdigest()[:8]}")


def _tell(console: Any, step: str, facts: dict[str, Any]) -> None:
    from edpbrl_gym.experiments.demo_report import OURS, PAPER

    if step == "vocabulary":
        text = f"{facts['tokens']} tokens in {len(facts['steps'])} steps ({', '.join(facts['steps'])})"
        bullet(console, "Words", f"{text}: {facts['prompts']:,} prompts.")
    elif step == "question":
        bullet(console, "A question", f'the last one to whoever likes "{facts["likes"]}", with the answer:')
        _show_example(console, facts)
    else:
        done = f"{facts['number'] + 1} of {facts['of']}"
        bullet(console, f"User {done}", f"wrong preferences {facts[PAPER]:.1%} (paper), {facts[OURS]:.1%} (ours).")


def _show_example(console: Any, facts: dict[str, Any]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for number, text in enumerate(facts["texts"]):
        chosen = number == facts["chosen"]
        shown = Text(
            f"{'>' if chosen else ' '} {text}", style="bold" if chosen else "dim", no_wrap=True, overflow="ellipsis"
        )
        console.print(Padding(shown, (0, 0, 0, 14)))
