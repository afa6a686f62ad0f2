"""What describes the lanes behind any stack of wrappers (the innermost environment as a rule), and what they show."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["base_environment", "check_shows", "mdp_states", "question_lanes", "shown_features"]


def base_environment(env: Any) -> Any:
    """What describes the lanes of a Gymnasium environment, vector environment or SB3 VecEnv, wrapped or not.

    For a single environment and for this package's vector environments that is ``unwrapped``, unless a wrapper's class
    declares ``describes_lanes = True`` (``StateActionFeatures``): the outermost such wrapper. A vector environment
    over single ones (Gymnasium's SyncVectorEnv, SB3's DummyVecEnv) is described by its first lane; one over processes
    (Gymnasium's AsyncVectorEnv) by another environment created by the same function, since its lanes are elsewhere.
    The caller checks which attributes it has.

    Raises:
        TypeError: If the lanes are in other processes and can't be created here (SB3's SubprocVecEnv).
    """
    layer = env
    while layer is not None:
        if getattr(type(layer), "describes_lanes", False):
            return layer
        attributes = getattr(layer, "__dict__", {})
        layer = attributes.get("env", attributes.get("venv"))
    inner = getattr(env, "unwrapped", env)
    lanes = getattr(inner, "envs", None)
    if lanes:
        return base_environment(lanes[0])
    makers = getattr(inner, "env_fns", None)
    if makers:
        return base_environment(makers[0]())
    if hasattr(inner, "remotes"):
        raise TypeError(
            f"Expected lanes in this process, got {type(inner).__name__} with lanes in other processes; create "
            "one of its environments here and pass that to the agent, or use DummyVecEnv."
        )
    return inner


def question_lanes(env: Any) -> int | None:
    """Number of options K if ``env`` is or wraps a ``PreferenceQuery``, otherwise None."""
    while env is not None:
        attributes = getattr(env, "__dict__", {})
        if "lanes" in attributes and "oracle" in attributes:
            return int(attributes["lanes"])
        env = attributes.get("env")
    return None


def mdp_states(base: Any, observations: ArrayLike) -> NDArray[np.intp]:
    """MDP state of each lane, (n,): ``base.mdp_state(observations)``, or the observations if they are integers."""
    if hasattr(base, "mdp_state"):
        return np.asarray(base.mdp_state(observations), dtype=np.intp)
    states = np.asarray(observations)
    if states.ndim != 1 or not np.issubdtype(states.dtype, np.integer):
        raise TypeError(
            f"Expected {type(base).__name__} to have mdp_state(observations) -> states (n,), as its observations are "
            f"not plain integers of shape (n,) but {states.dtype} of shape {states.shape}; add that method."
        )
    return states.astype(np.intp)


def check_shows(base: Any, feedback: str) -> None:
    """Raise a TypeError for a ``base_environment`` that can't give the features that a feedback compares."""
    name = type(base).__name__
    if feedback != "state" and not hasattr(base, "trajectory_features"):
        raise TypeError(
            f'Expected {name} to have trajectory_features(observations) -> (n, d) for feedback="{feedback}"; add that '
            'method or use feedback="state".'
        )
    if feedback != "state" or hasattr(base, "state_features"):
        return
    missing = [attribute for attribute in ("mdp", "features") if not hasattr(base, attribute)]
    if missing:
        raise TypeError(
            f"Expected {name} to have state_features(observations) -> (n, d), or .mdp and .features, for "
            f'feedback="state"; it lacks {" and ".join(missing)}.'
        )


def shown_features(
    base: Any, feedback: str, *, reached: NDArray[Any], previous: NDArray[Any], actions: NDArray[Any]
) -> NDArray[np.float32]:
    """Features of what n lanes show after a step, shape (n, d), in one call for all lanes.

    Those are the ``trajectory_features``, or for "state" the ``state_features``, else the row of the state-action pair.

    Args:
        base: A ``base_environment`` that passed ``check_shows``.
        feedback: "truncated", "state" or "prompt".
        reached: Observations after the step, before any automatic reset.
        previous: Observations before it.
        actions: The actions taken, shape (n,).
    """
    if feedback != "state":
        features = base.trajectory_features(reached)
    elif hasattr(base, "state_features"):
        features = base.state_features(reached)
    else:
        features = np.asarray(base.features)[_pair_rows(base, previous, actions)]
    return np.asarray(features, dtype=np.float32)


def _pair_rows(base: Any, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.intp]:
    """Feature rows of the state-action pairs that the lanes just took."""
    mdp = base.mdp
    states = mdp_states(base, observations)
    keys = mdp.pair_state * mdp.num_actions + mdp.pair_action
    pair_keys = states * mdp.num_actions + actions
    pairs = np.minimum(np.searchsorted(keys, pair_keys), keys.size - 1)
    missing = np.flatnonzero((keys[pairs] != pair_keys) | (actions < 0) | (actions >= mdp.num_actions))
    if missing.size:
        lane = int(missing[0])
        raise ValueError(f"The MDP has no pair for state {states[lane]}, action {actions[lane]}.")
    return np.asarray(mdp.pair_row[pairs])
