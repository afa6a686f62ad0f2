"""A preregistration: what a study will do, written from its configuration, and whether that has changed since."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edpbrl_gym
from edpbrl_gym._texts import read_text
from edpbrl_gym.reporting.statistics import plural
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.exclusions import rule_of

__all__ = ["PREREGISTRATION", "preregistration", "preregistered"]

PREREGISTRATION = "preregistration.md"
_DIGEST = re.compile(r"^\|\s*([a-z ]+?)\s*\|\s*([0-9a-f]{16})\s*\|\s*$", re.MULTILINE)


def preregistered(config: StudyConfig) -> dict[str, Any] | None:
    """What the file beside a configuration says of it; None: there is no such file.

    Returns:
        ``changed``: names of the parts that are not what they were; None where the file has no digests.
    """
    path = config.folder / PREREGISTRATION
    if not path.is_file():
        return None
    written = dict(_DIGEST.findall(read_text(path)))
    if not written:
        return {"changed": None}
    return {"changed": [name for name, digest in config.parts.items() if written.get(name) != digest]}


def preregistration(config: StudyConfig) -> str:
    """The page, in Markdown."""
    return "\n\n".join(["\n".join(block) for block in _blocks(config)]) + "\n"


def _blocks(config: StudyConfig) -> Iterator[list[str]]:
    yield [f"# {config.title}"]
    yield [
        "Preregistration, written by `edpbrl study preregister` from study.toml. Replace what is in brackets, and "
        "register the page before the first participant. The table at the end shows whether study.toml changes later."
    ]
    yield ["## Hypotheses"]
    yield [
        "1. (Which arm differs from which, in which of the measures below, in which direction, and why.)",
        "2. (What would speak against it. Which hypothesis is the main one; the others are exploratory.)",
    ]
    arms = [
        [arm.name, arm.planner, "none" if arm.prior is None else Path(arm.prior).name if isinstance(arm.prior, Path)
         else type(arm.prior).__name__, str(arm.weight)]
        for arm in config.arms
    ]  # fmt: skip
    yield TextTable("Arms", ["arm", "planner", "prior", "people of a block"], arms, "", 3).markdown()
    for title, lines in (
        ("People", _people(config)),
        ("Questions", _questions(config)),
        ("Randomisation", _randomisation(config)),
        ("Exclusions", _exclusions(config)),
        ("Measures", _measures(config)),
        ("Analyses", _analyses(tested=config.checks.test > 0 and len(config.arms) > 1)),
    ):
        yield [f"## {title}"]
        yield [f"- {line}" for line in lines]
    digests = [[name, digest] for name, digest in config.parts.items()]
    note = f"edpbrl-gym {edpbrl_gym.__version__}, Python {platform.python_version()}, seed {config.seed}."
    yield TextTable("Configuration", ["part", "sha256"], digests, note, 2).markdown()


def _people(config: StudyConfig) -> Iterator[str]:
    one = config.recruitment
    yield f"From: {one.preset.title or '(where people come from)'}. (Who may take part.)"
    limits = [f"{one.people} who finish"] if one.people else []
    limits += [f"{most} who finish in {arm}" for arm, most in one.arms.items()]
    yield f"Number: {', '.join(limits) or '(how many who finish: study.toml sets no number)'}. (Why so many.)"
    ends = ["when so many have finished"] if limits else []
    ends += [f"on {one.closes.isoformat()} at the latest"] if one.closes else []
    yield f"Recruitment ends {', '.join(ends) or '(when: study.toml says neither a number nor a time)'}."
    if one.time_out:
        yield f"Who gives no answer for {one.time_out} minutes is timed out, and the place goes to the next person."
    checks = [page.title for page in config.pages if any(question.accept is not None for question in page.questions)]
    if checks:
        yield f"Screening: who does not give the accepted answers on {', '.join(map(repr, checks))} takes no part."
    if one.pay is not None:
        yield f"Pay: {one.pay.amount:.2f} {one.pay.currency}."


def _questions(config: StudyConfig) -> Iterator[str]:
    questions, checks = config.questions, config.checks
    number = str(questions.number)
    if (rule := questions.stopping) is not None:
        number = (
            f"{rule.minimum} to {questions.number} (until the predicted accuracy is {rule.target:.0%}, or "
            f"{rule.lookahead} more are predicted to add less than {rule.gain:.0%})"
        )
    yield (
        f"{number} that count, each of {questions.options} options ({questions.feedback}) of the vocabulary "
        f"`{questions.vocabulary}`, answered by {questions.format}; shown as "
        f"{'text' if config.pictures is None else f'pictures ({config.pictures.renderer})'}; estimates use the encoder "
        f"`{questions.encoder}`."
    )
    yield (
        f"{config.practice.questions} for practice, {plural(checks.attention, 'attention check')}, {checks.repeated} "
        f"repeated, {plural(checks.test, 'test question')}, the same for everybody and used for no estimate."
    )
    tells = "an answer" if questions.cant_tell else "no answer"
    yield f"Can't tell is {tells}; the last answer can{'' if questions.undo else 'not'} be taken back."


def _randomisation(config: StudyConfig) -> Iterator[str]:
    block = sum(arm.weight for arm in config.arms)
    yield (
        f"Blocks of {block} people in random order, each arm as often as the table says; the place of "
        "who drops out goes to the next person. Participants are not told their arm. (Who else knows it.)"
    )
    yield "The order of options on the page, and the places of checks and test questions, are drawn for each person."


def _exclusions(config: StudyConfig) -> Iterator[str]:
    rule = rule_of(config.exclusions.as_json())
    if not rule:
        yield "None: study.toml has no table [exclusions]."
        return
    yield "Of those who finish, whoever meets one of these is excluded; the arms are compared with and without them."
    yield from rule


def _measures(config: StudyConfig) -> Iterator[str]:
    from edpbrl_gym.study.reporting.comparing import MEASURES

    for name, meaning in MEASURES.items():
        if (name in ("hit", "log") and not config.checks.test) or (name == "repeats" and not config.checks.repeated):
            continue
        yield f"{meaning}, a participant's mean{' (median)' if name == 'seconds' else ''}"
    if config.style:
        yield "style preferred at the end: prompts of the learnt taste, or random ones"


def _analyses(*, tested: bool) -> Iterator[str]:
    yield (
        "`edpbrl study report` of the version below: each measure by arm and its difference from the first arm, means "
        "over participants who finished, with 95% bootstrap intervals over participants, before and after exclusions; "
        "agreement about the test questions (Brennan and Prediger's kappa); drop-out by arm."
    )
    if tested:
        yield (
            "The test of arms, before and after exclusions: the log-likelihood of a test answer, of each arm against "
            "the first one, with people and test questions as random effects (quasi-F, the questions' part left out "
            "where its F test gives p >= .25), two-sided, Holm's correction for several comparisons, level .05."
        )
    yield "(Which of these decides about each hypothesis, and how several comparisons are corrected for.)"
    yield "(What else: conditional logits of options.csv, for example.)"
