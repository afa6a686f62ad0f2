"""The paper's experiment with synthetic ground truth models, ``edpbrl reproduce synthetic``.

Users whose taste theta* is the embedding of a sentence answer the questions of each agent; theta is estimated after T
episodes and compared with theta*. A unit is a run with all agents, users and numbers of episodes. The questions of a
run don't depend on the answers, so they are encoded once and answered by every user in every mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym._threads import one_thread
from edpbrl_gym.collection.collect import answer_again, collect
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.metrics import cosine_error, preference_error, sample_pairs
from edpbrl_gym.experiments.designs import Tokens, check_agents, make_lanes, obtain_agent, solve_designs, train_tokens
from edpbrl_gym.experiments.framework import Experiment, Run, Unit, text_inputs
from edpbrl_gym.experiments.settings import AgentSettings, SyntheticSettings, UserSettings
from edpbrl_gym.experiments.synthetic_report import make_report
from edpbrl_gym.oracles import SyntheticUser

__all__ = ["SYNTHETIC"]


class _Prepared(NamedTuple):
    """Data shared by all runs: theta* of the users, (d,) each, held-out prompts, (n, d), and pairs of them, (p, 2)."""

    tokens: Tokens
    tastes: dict[str, NDArray[np.float64]]
    features: NDArray[np.float32]
    pairs: NDArray[np.int64]


def _plan(settings: SyntheticSettings) -> list[Unit]:
    check_agents(settings)
    return [Unit(f"run-{number:04d}", number) for number in range(settings.runs)]


def _prepare(run: Run, todo: list[Unit]) -> _Prepared | None:
    """Embed the tokens, the users' sentences and the held-out prompts, and solve the designs; the same for all runs."""
    settings: SyntheticSettings = run.settings
    train, test = run.vocabulary.split(settings.seed)
    run.folder.note(train_sizes=list(train.sizes), test_sizes=list(test.sizes))
    if not todo and run.folder.provenance.get("designs_solved"):
        return None
    tokens = train_tokens(train, run.encoder, progress=run.progress)
    rng = generator(settings.seed, "evaluation")
    sample = sample_pairs(test.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    sentences = run.encoder.encode(list(settings.users.values())).astype(np.float64)
    sentences /= np.linalg.norm(sentences, axis=1, keepdims=True)
    features = run.encoder.encode([test.prompt(row) for row in sample.tokens], progress=run.progress)
    run.folder.note(prompts=len(sample.tokens), pairs=len(sample.pairs))
    designs = solve_designs(settings, run, tokens)
    run.folder.note(
        designs=sorted(designs, key=lambda design: (design["agent"], design["episodes"])), designs_solved=True
    )
    return _Prepared(tokens, dict(zip(settings.users, sentences, strict=True)), features, sample.pairs)


def _run_unit(settings: SyntheticSettings, unit: Unit, folder: Path, prepared: _Prepared) -> list[dict[str, Any]]:
    with one_thread():
        each = (_agent_rows(settings, unit, folder, prepared, number) for number in range(len(settings.agents)))
        return [row for rows in each for row in rows]


def _agent_rows(
    settings: SyntheticSettings, unit: Unit, folder: Path, prepared: _Prepared, position: int
) -> list[dict[str, Any]]:
    agent: AgentSettings = settings.parsed_agents[position]
    rows = []
    for planned, served in settings.planned(agent):
        seed = derive_seed(settings.seed, "queries", unit.number, agent.text, planned)
        env = make_lanes(settings, prepared.tokens, planned * settings.num_options)
        player = obtain_agent(settings, position, planned, folder, env, seed)
        users = list(_users(settings, unit, prepared, planned))
        first, feedback = users[0][2], settings.feedback
        questions = collect(env, player, first, episodes=planned, seed=seed % 2**31, feedback=feedback)
        shown = questions.features.astype(np.float64)
        best = {name: np.argmax(shown @ taste, axis=1) for name, taste in prepared.tastes.items()}
        for name, answering, user in users:
            user.reset()
            answered = answer_again(questions, user)
            for episodes in served:
                early = answered.episode < episodes
                row = {"run": unit.number, "seed": seed, "agent": agent.label, "episodes": episodes, "planned": planned}
                row |= {"user": name, "mode": answering.mode, "scale": answering.scale}
                rows.append(row | _measure(settings, prepared, answered.select(early), name, best[name][early]))
        env.close()
    return rows


def _users(
    settings: SyntheticSettings, unit: Unit, prepared: _Prepared, planned: int
) -> Iterator[tuple[str, UserSettings, SyntheticUser]]:
    """Every user in every way of answering, with the same draws for all agents of a run."""
    for name, taste in prepared.tastes.items():
        for answering in settings.answering:
            key = ("answers", unit.number, name, answering.mode, f"{answering.scale!r}", planned)
            mode = cast(Literal["argmax", "sampled"], answering.mode)
            seed = derive_seed(settings.seed, *key)
            yield name, answering, SyntheticUser(taste, mode=mode, scale=answering.scale, seed=seed, name=name)


def _measure(
    settings: SyntheticSettings, prepared: _Prepared, answered: Comparisons, user: str, best: NDArray[np.int64]
) -> dict[str, Any]:
    result = estimate(answered, regularization=settings.estimation_lambda)
    truth = prepared.tastes[user]
    return {
        "questions": len(answered),
        "cosine_error": cosine_error(result.theta, truth),
        "preference_error": preference_error(result.theta, truth, prepared.features, prepared.pairs),
        "best_chosen": float((answered.choice == best).mean()),
        "estimation_regularization": settings.estimation_lambda,
        "converged": bool(result.converged),
        "newton_iterations": int(result.iterations),
        "theta_norm": float(np.linalg.norm(result.theta)),
    }


SYNTHETIC = Experiment(
    kind="synthetic",
    command="edpbrl reproduce synthetic",
    settings=SyntheticSettings,
    plan=_plan,
    inputs=text_inputs,
    prepare=_prepare,
    run_unit=_run_unit,
    report=make_report,
    units="runs",
)
