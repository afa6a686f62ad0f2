"""Ask the judge the questions of all arms, style by style; every answer is in the ledger before it is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.llm.measuring import AnsweredArm
from edpbrl_gym.experiments.llm.questions import ArmQuestions
from edpbrl_gym.experiments.runs import RunFolder, RunFolderError
from edpbrl_gym.oracles.judge import Judge, JudgeQuestion, JudgeSettings, Verdict

if TYPE_CHECKING:
    from edpbrl_gym.rendering.cache import RenderedImage

__all__ = ["FLAGGED", "LEDGER", "BudgetSpent", "answers_part", "ask_style", "read_answers"]

LEDGER = "ledger.jsonl"
FLAGGED = "flagged"  # reason of a question that isn't asked since the safety checker flagged one of its pictures

Progress = Callable[[int, int], None]


class BudgetSpent(RunFolderError):
    """The budget ended before the questions did; the answers so far are in the ledger."""


def answers_part(style: str, place: int) -> str:
    """Name of the part with the answers under a style, number ``place`` of the settings."""
    safe = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in style)
    return f"answers-{place:02d}-{safe}"


def ask_style(
    judge: Judge,
    style: str,
    arms: Sequence[ArmQuestions],
    folder: RunFolder,
    part: str,
    *,
    images: Mapping[str, RenderedImage] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask all questions under one style and write a row for each into a part of the run folder.

    Args:
        judge: The judge with the style's guidance.
        style: Name of the style.
        arms: The questions.
        folder: The run folder.
        part: Name of the part.
        images: The picture of every text; None shows the texts.
        progress: Called with the number of looks done and the total.

    Returns:
        The judge's account.

    Raises:
        BudgetSpent: If the budget ended before the questions did; no part is written.
        RunFolderError: If no question at all was answered; no part is written.
    """
    import pandas

    index = [(arm, number) for arm in arms for number in range(len(arm))]
    pictures_of = [_pictures(arm.texts[number], images) for arm, number in index]
    questions = [
        JudgeQuestion(texts=arm.texts[number], images=pictures, identity=arm.identity(number))
        for (arm, number), pictures in zip(index, pictures_of, strict=True)
        if pictures != FLAGGED
    ]
    verdicts = iter(judge.ask(questions, progress=progress))
    rows = []
    for (arm, number), pictures in zip(index, pictures_of, strict=True):
        verdict = None if pictures == FLAGGED else next(verdicts)
        rows.append(_row(style, arm, number, verdict))
    table = pandas.DataFrame(rows)
    _check(table, style, judge.settings)
    folder.write_part(part, table)
    return judge.account()


def _pictures(texts: Sequence[str], images: Mapping[str, RenderedImage] | None) -> Any:
    """Paths of the pictures of a question; None without pictures, ``FLAGGED`` if one of them must not be shown."""
    if images is None:
        return None
    pictures = [images[text] for text in texts]
    return FLAGGED if any(image.flagged for image in pictures) else [Path(image.path) for image in pictures]


def _row(style: str, arm: ArmQuestions, number: int, verdict: Verdict | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "style": style, "arm": arm.arm, "episode": int(arm.episode[number]), "step": int(arm.step[number]),
    }  # fmt: skip
    if verdict is None:
        return row | {"choice": -1, "label": -1, "reason": FLAGGED, "consistent": None, "order": None} | {
            "input_tokens": 0, "output_tokens": 0, "latency": 0.0, "retries": 0,
        }  # fmt: skip
    choice = -1 if verdict.choice is None else int(verdict.choice)
    return row | {
        "choice": choice,
        "label": -1 if choice < 0 else verdict.order.index(choice),
        "reason": verdict.reason,
        "consistent": None if verdict.consistent is None else float(verdict.consistent),
        "order": list(verdict.order) or None,
        "input_tokens": verdict.usage.input_tokens,
        "output_tokens": verdict.usage.output_tokens,
        "latency": verdict.latency,
        "retries": verdict.retries,
    }


def _check(table: Any, style: str, judge: JudgeSettings) -> None:
    """Refuse answers that are incomplete or empty."""
    reasons = table["reason"].value_counts().to_dict()
    if reasons.get("budget"):
        raise BudgetSpent(
            f"The budget ended at the style {style!r}: {reasons['budget']} of its {len(table)} questions were not "
            "asked. All answers so far are kept; run the same command with a larger --max-questions or --max-tokens "
            "to go on"
        )
    if (table["choice"] >= 0).any():
        return
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    raise RunFolderError(
        f"Expected answers of {judge.model} at {judge.address} under the style {style!r}, got none to {len(table)} "
        f"questions ({counts}); check the endpoint and the model's name, then run the same command again"
    )


def read_answers(table: Any, arms: Sequence[ArmQuestions]) -> list[AnsweredArm]:
    """The arms with the choices of one style's part, in the order of their questions."""
    answered = []
    for arm in arms:
        rows = table[table["arm"] == arm.arm]
        same = len(rows) == len(arm) and np.array_equal(rows[["episode", "step"]], np.stack([arm.episode, arm.step], 1))
        if not same:
            raise RunFolderError(
                f"Expected the answers to the {len(arm)} questions of {arm.arm}, got others; the files in parts/ do "
                "not belong together, start a new run"
            )
        answered.append(AnsweredArm(arm, rows["choice"].to_numpy(dtype=np.int64)))
    return answered
