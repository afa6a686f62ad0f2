"""What Frank-Wolfe with a deep oracle has found so far: policies, their moments and weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Floats, Indices
from edpbrl_gym.agents.sb3 import LearnedPolicy
from edpbrl_gym.design.moments import MomentProblem, PolicyMoments

__all__ = ["Mixture", "OracleRecord", "action_probabilities"]


@dataclass(frozen=True)
class OracleRecord:
    """One iteration of Frank-Wolfe.

    Attributes:
        iteration: Number of the iteration, from 0.
        value: Objective of the mixture before it, at the estimated moments.
        achieved_gap: What the trained policy gained over that mixture on rollouts (`design.gaps.achieved_gap`): too low
            to be a certificate, and negative where the training found nothing better.
        weight: Weight that the trained policy got.
        timesteps: Steps of training.
        seconds: Wall-clock time.
    """

    iteration: int
    value: float
    achieved_gap: float
    weight: float
    timesteps: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Mixture:
    """Policies found so far, one of which is drawn for every episode.

    Attributes:
        policies: The first is None, the uniformly random policy; the others are networks.
        moments: What each shows, by rollouts.
        weights: Their probabilities, shape (n,).
        history: One record for each iteration.
        horizon: H.
        restricted: Whether an action was illegal at any time while the first policy was played; if not, no masks are
            asked for.
        value: Objective at the estimated moments.
    """

    policies: tuple[LearnedPolicy | None, ...]
    moments: tuple[PolicyMoments, ...]
    weights: Floats
    history: tuple[OracleRecord, ...]
    horizon: int
    restricted: bool
    value: float

    @property
    def mean(self) -> PolicyMoments:
        """Moments of the mixture."""
        return PolicyMoments.mixture(self.moments, self.weights)

    @classmethod
    def uniform(cls, problem: MomentProblem, moments: PolicyMoments, *, restricted: bool) -> Self:
        """The uniformly random policy alone."""
        return cls((None,), (moments,), np.ones(1), (), problem.horizon, restricted, problem.value(moments))

    def extended(
        self,
        problem: MomentProblem,
        policy: LearnedPolicy,
        moments: PolicyMoments,
        weights: Floats,
        record: OracleRecord,
    ) -> Self:
        """The mixture with one policy more, and these weights of all."""
        known = (*self.moments, moments)
        value = problem.value(PolicyMoments.mixture(known, weights))
        return replace(
            self,
            policies=(*self.policies, policy),
            moments=known,
            weights=weights,
            history=(*self.history, record),
            value=value,
        )

    def probabilities(self, index: int, observations: NDArray[Any], steps: Indices, masks: Booleans) -> Floats:
        """Probabilities (n, A) of the actions of one of the policies; see `action_probabilities`."""
        return action_probabilities(self.policies[index], observations, steps, masks)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays by names, without objects."""
        record = {
            "horizon": self.horizon,
            "restricted": self.restricted,
            "value": self.value,
            "history": [asdict(one) for one in self.history],
        }
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights, "record": np.array(json.dumps(record))}
        for index, (policy, moments) in enumerate(zip(self.policies, self.moments, strict=True)):
            arrays[f"{index}/means"], arrays[f"{index}/second"] = moments.means, moments.second
            for name, value in ({} if policy is None else policy.parameters()).items():
                arrays[f"{index}/network/{name}"] = value
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], network: Callable[[dict[str, NDArray[Any]], int], LearnedPolicy]
    ) -> Self:
        """Rebuild what ``arrays`` gave.

        Args:
            arrays: The arrays.
            network: Builds a policy from its parameters and the horizon.
        """
        record = json.loads(str(arrays["record"]))
        policies: list[LearnedPolicy | None] = []
        moments = []
        for index in range(len(arrays["weights"])):
            prefix = f"{index}/network/"
            own = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            policies.append(network(own, record["horizon"]) if own else None)
            moments.append(PolicyMoments(arrays[f"{index}/means"], arrays[f"{index}/second"]))
        history = tuple(OracleRecord(**entry) for entry in record["history"])
        return cls(
            tuple(policies),
            tuple(moments),
            arrays["weights"],
            history,
            record["horizon"],
            record["restricted"],
            record["value"],
        )


def action_probabilities(
    policy: LearnedPolicy | None, observations: NDArray[Any], steps: Indices, masks: Booleans
) -> Floats:
    """Probabilities (n, A) of a network's actions, or equal ones of all legal actions."""
    if policy is None:
        return masks / masks.sum(axis=1, keepdims=True)
    return policy.probabilities(observations, steps, masks)
