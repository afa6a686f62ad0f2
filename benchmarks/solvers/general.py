"""Problems whose MDP builds no prompts: random transitions, random graphs; and their certificate.

    stochastic  S states, A = 10 actions, H = 20 steps, every action with 10 random successors; mass starts everywhere
    uneven      the same with 3 successors, one of them much likelier than the others; mass starts in one state
    graph       S states with 5 successors each, H = 6 steps, deterministic

The rows are the states, with features of a decaying spectrum (`benchmarks.mdps`). The certificate shares no code with
the library: with the rewards T (x_n - m_h)' G (x_n - m_h) of the state n at step h (`certificate`) the gap is the
return of the best policy, by value iteration, less that of the design.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import mdps
from benchmarks.solvers.cases import EPISODES, POLICIES, Block, Case, Instance
from benchmarks.solvers.certificate import Certificate, certificate, gain_of, objective, score_factor
from edpbrl_gym._arrays import Floats
from edpbrl_gym.design import Design, DesignProblem, make_criterion

__all__ = ["SOURCES", "GeneralInstance", "certified", "make_instance"]

SOURCES = ("stochastic", "uneven", "graph")
ACTIONS, STEPS = 10, 20
SUCCESSORS, GRAPH_STEPS = 5, 6
UNEVEN: dict[str, Any] = {"successors": 3, "concentration": 0.2, "one_start": True}
_FEASIBLE = 1e-8


class GeneralInstance(Instance):
    """A case of one of these MDPs; arguments as in `Instance`."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.blocks = (slice(0, case.tokens),)
        shape = (case.dimension, case.seed)
        if case.source == "stochastic":
            self.mdp, self._features = mdps.stochastic_mdp(case.tokens, ACTIONS, STEPS, *shape)
        elif case.source == "uneven":
            self.mdp, self._features = mdps.stochastic_mdp(case.tokens, ACTIONS, STEPS, *shape, **UNEVEN)
        else:
            self.mdp, self._features = mdps.graph(case.tokens, SUCCESSORS, GRAPH_STEPS, *shape)

    @property
    def features(self) -> Floats:
        """Phi, shape (S, d)."""
        return self._features

    def design_problem(self, *, merged: bool = False) -> DesignProblem:
        """See `Instance`; there is nothing to merge."""
        return DesignProblem(
            mdp=self.mdp,
            features=self.features,
            num_policies=POLICIES,
            episodes=EPISODES,
            criterion=make_criterion(self.kind, self.target if self.kind == "V" else None),
            regularization=self.case.regularization,
        )

    def of_design(self, design: Design) -> list[Block]:
        """One block a step, its weights those of the (state, action) pairs."""
        return [Block(slice(0, len(weights)), weights, float(EPISODES)) for weights in design.mean_occupancy]

    @cached_property
    def transitions(self) -> Floats:
        """P(s' | pair), shape (M, S)."""
        return np.asarray(self.mdp.transitions.toarray())


def make_instance(case: Case, folder: Path) -> Instance:
    """The instance of a case."""
    return GeneralInstance(case, folder) if case.source in SOURCES else Instance(case, folder)


def certified(instance: Instance, design: list[Block]) -> Certificate:
    """The certificate of a design of any instance.

    Raises:
        ValueError: If the design is no probability distribution at some step, or breaks the flow between two.
    """
    if not isinstance(instance, GeneralInstance):
        return certificate(instance, design)
    weights = np.stack([block.weights for block in design])
    _check_flow(instance, weights)
    features, pairs = instance.features, instance.mdp.pair_row
    rows = np.stack([np.bincount(pairs, weights=step, minlength=len(features)) for step in weights])
    means = rows @ features
    moment = (features.T * rows.sum(axis=0)) @ features - means.T @ means
    matrix = EPISODES * moment + instance.case.regularization * np.eye(instance.case.dimension)
    value = objective(instance, matrix)
    factor = score_factor(instance, matrix)
    rewards = np.stack([EPISODES * np.square((features - mean) @ factor.T).sum(axis=1) for mean in means])[:, pairs]
    onward = np.zeros(instance.case.tokens)
    for reward in rewards[::-1]:
        best = np.full(instance.case.tokens, -np.inf)
        np.maximum.at(best, instance.mdp.pair_state, reward + instance.transitions @ onward)
        onward = best
    gap = float(instance.mdp.initial @ onward) - float(np.vdot(rewards, weights))
    return Certificate(value, gain_of(instance, value), max(0.0, gap))


def _check_flow(instance: GeneralInstance, weights: Floats) -> None:
    states, inflow = instance.mdp.pair_state, instance.mdp.initial
    for step in weights:
        mass = np.bincount(states, weights=step, minlength=instance.case.tokens)
        if step.min() < 0 or np.abs(mass - inflow).max() > _FEASIBLE:
            raise ValueError(f"Expected occupancies that flow, got a difference of {np.abs(mass - inflow).max():.1e}.")
        inflow = step @ instance.transitions
