"""One run of the synthetic experiment: ask once, let every user answer, estimate, measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.collection.collect import answer_again, collect
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.metrics import cosine_error, preference_error
from edpbrl_gym.experiments.designs import Tokens, design_episodes, make_lanes, obtain_agent
from edpbrl_gym.experiments.runs import RunFolder
from edpbrl_gym.experiments.settings import SyntheticSettings, UserSettings
from edpbrl_gym.oracles import SyntheticUser

__all__ = ["Evaluation", "RunTask", "part_name", "perform"]


@dataclass(frozen=True)
class Evaluation:
    """What estimates are measured against.

    Attributes:
        tastes: theta* of each user, shape (d,) each.
        features: Embeddings of the held-out prompts, shape (n, d).
        pairs: Pairs of them, shape (p, 2).
    """

    tastes: dict[str, NDArray[np.float64]]
    features: NDArray[np.float32]
    pairs: NDArray[np.int64]


@dataclass(frozen=True)
class RunTask:
    """Everything that one run needs, sent to its process.

    Attributes:
        settings: The experiment.
        run: Number of the run, from 0.
        folder: The run folder; the result is written to its parts.
        tokens: Train tokens.
        evaluation: Users and held-out prompts.
    """

    settings: SyntheticSettings
    run: int
    folder: Path
    tokens: Tokens
    evaluation: Evaluation


def part_name(run: int) -> str:
    """Name of a run's part file."""
    return f"run-{run:04d}"


def perform(task: RunTask) -> int:
    """Do one run with all agents, users and numbers of episodes, and write its part; return its number."""
    import pandas

    rows: list[dict[str, Any]] = []
    with one_thread():
        for position in range(len(task.settings.agents)):
            rows += _agent_rows(task, position)
    folder = RunFolder(task.folder, kind="synthetic", config={})
    folder.write_part(part_name(task.run), pandas.DataFrame(rows))
    return task.run


def _agent_rows(task: RunTask, position: int) -> list[dict[str, Any]]:
    settings = task.settings
    agent = settings.parsed_agents[position]
    rows = []
    for planned, used in design_episodes(settings, agent):
        seed = derive_seed(settings.seed, "queries", task.run, agent.text, planned)
        env = make_lanes(settings, task.tokens, planned * settings.num_options)
        player = obtain_agent(settings, position, planned, task.folder, env, seed)
        users = _users(task, planned)
        asked = collect(
            env,
            player,
            users[0][2],
            episodes=planned,
            seed=seed % 2**31,
            feedback=settings.feedback,
        )
        best = {name: _best_options(asked, taste) for name, taste in task.evaluation.tastes.items()}
        for name, answering, user in users:
            user.reset()
            answered = answer_again(asked, user)
            for episodes in used:
                part = answered.select(answered.episode < episodes)
                row = {"run": task.run, "seed": seed, "agent": agent.label, "episodes": episodes, "planned": planned}
                row |= {"user": name, "mode": answering.mode, "scale": answering.scale}
                rows.append(row | _measure(task, part, name, best[name][answered.episode < episodes]))
        env.close()
    return rows


def _users(task: RunTask, planned: int) -> list[tuple[str, UserSettings, SyntheticUser]]:
    """Every user in every way of answering; the draws are the same for all agents of a run."""
    found = []
    for name, taste in task.evaluation.tastes.items():
        for answering in task.settings.answering:
            seed = derive_seed(
                task.settings.seed, "answers", task.run, name, answering.mode, f"{answering.scale!r}", planned
            )
            mode = cast(Literal["argmax", "sampled"], answering.mode)
            user = SyntheticUser(taste, mode=mode, scale=answering.scale, seed=seed, name=name)
            found.append((name, answering, user))
    return found


def _best_options(asked: Comparisons, taste: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argmax(asked.features.astype(np.float64) @ taste, axis=1)


def _measure(task: RunTask, answered: Comparisons, user: str, best: NDArray[np.int64]) -> dict[str, Any]:
    settings, evaluation = task.settings, task.evaluation
    found = estimate(answered, regularization=settings.estimation_lambda)
    truth = evaluation.tastes[user]
    return {
        "questions": len(answered),
        "cosine_error": cosine_error(found.theta, truth),
        "preference_error": preference_error(found.theta, truth, evaluation.features, evaluation.pairs),
        "best_chosen": float((answered.choice == best).mean()),
        "estimation_regularization": settings.estimation_lambda,
        "converged": bool(found.converged),
        "newton_iterations": int(found.iterations),
        "theta_norm": float(np.linalg.norm(found.theta)),
    }
