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

__all__ = ["FLAGGED", "LEDGER", "UNDRAWN", "BudgetSpent", "ask_style", "read_answers"]

LEDGER = "ledger.jsonl"
FLAGGED = "flagged"  # reason of a question that isn't asked since the safety checker flagged one of its pictures
UNDRAWN = "undrawn"  # the same where an option has no picture


class BudgetSpent(RunFolderError):
    """The budget ended before the questions did; the answers so far are in the ledger."""


def ask_style(
    judge: Judge,
    style: str,
    arms: Sequence[ArmQuestions],
    folder: RunFolder,
    part: str,
    *,
    images: Mapping[str, RenderedImage | None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Ask all questions under one style and write a row for each into a part of the run folder; return the account.

    ``images`` are the pictures of all texts (None: it has none), without them the texts are shown; ``progress`` is told
    the requests done and all.

    Raises:
        BudgetSpent: If the budget ended before the questions did; no part is written.
        RunFolderError: If no question at all was answered; no part is written.
    """
    import pandas

    questions: dict[tuple[int, int], JudgeQuestion] = {}  # by arm and number, those whose pictures can be shown
    hidden: dict[tuple[int, int], str] = {}  # why others are not asked
    for which, arm in enumerate(arms):
        for number, texts in enumerate(arm.texts):
            shown = [] if images is None else [images[text] for text in texts]
            seen = [image for image in shown if image is not None]
            if len(seen) < len(shown) or any(image.flagged for image in seen):
                hidden[which, number] = FLAGGED if len(seen) == len(shown) else UNDRAWN
                continue
            paths = None if images is None else [Path(image.path) for image in seen]
            questions[which, number] = JudgeQuestion(texts=texts, images=paths, identity=arm.identity(number))
    verdicts = dict(zip(questions, judge.ask(list(questions.values()), progress=progress), strict=True))
    table = pandas.DataFrame(
        _row(style, arm, number, verdicts.get((which, number)), hidden.get((which, number)))
        for which, arm in enumerate(arms)
        for number in range(len(arm))
    )
    _check(table, style, judge.settings)
    folder.write_part(part, table)
    return judge.account()


def _row(style: str, arm: ArmQuestions, number: int, verdict: Verdict | None, hidden: str | None) -> dict[str, Any]:
    verdict = verdict or Verdict(None, "refused")
    choice = -1 if verdict.choice is None else int(verdict.choice)
    return {
        "style": style,
        "arm": arm.arm,
        "episode": int(arm.episode[number]),
        "step": int(arm.step[number]),
        "choice": choice,
        "label": -1 if choice < 0 else verdict.order.index(choice),
        "reason": hidden or verdict.reason,
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
    if not (table["choice"] >= 0).any():
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
