"""Ask which of K lanes is best, at every step of every group of lanes or when its episode ends."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from edpbrl_gym._base_environment import base_environment, check_shows, shown_features
from edpbrl_gym._validation import Feedback, check_count, check_feedback
from edpbrl_gym.comparisons import Comparisons, Queries
from edpbrl_gym.envs.common import LaneTracker
from edpbrl_gym.oracles import Oracle, answers_of, check_oracle

__all__ = ["PreferenceQuery"]


class PreferenceQuery(VectorWrapper, RecordConstructorArgs):
    """Compare the K lanes of each group; the reward is 1 for the lane that the oracle prefers, else 0.

    The B * K lanes of the vector environment are B groups: lane b * K + q is option q of group b, so B episodes run at
    once and encoders get large batches. Works on the package's own vector environments and on Gymnasium's
    SyncVectorEnv and AsyncVectorEnv. A group is asked about at every step of its episode, with ``feedback="prompt"`` at
    the last one only (where its lanes terminate or are truncated); a step that only resets lanes asks nothing.

    ``infos["preference"]`` (B,) holds the best option of each group, -1 where none was asked or the answer names none,
    with the boolean ``infos["_preference"]`` (an answer is there); ``infos["question"]`` (B, K) holds the
    options as text where the environment has texts, and ``infos["_question"]`` (B,) says which groups were asked. A
    question without an answer rewards no lane and is not in ``comparisons``; a tie rewards none but is.

    Args:
        env: Vector environment with B * K lanes.
        lanes: K, the number of options of a question, at least 2.
        oracle: Who answers.
        feedback: "truncated" compares the partial trajectories (``trajectory_features`` of the environment), "state"
            what the last action showed (``state_features``, or the feature row of the state-action pair in ``.mdp``),
            "prompt" the complete trajectories, once an episode: what a person who looks at pictures compares.

    Raises:
        ValueError: If K < 2, num_envs isn't a multiple of K, or ``feedback`` is unknown.
        TypeError: If ``lanes`` is no integer, ``oracle`` is no oracle, or the environment can't give the
            features that the feedback compares.
    """

    def __init__(self, env: VectorEnv, *, lanes: int, oracle: Oracle, feedback: Feedback = "truncated") -> None:
        RecordConstructorArgs.__init__(self, lanes=lanes, oracle=oracle, feedback=feedback, _disable_deepcopy=True)
        VectorWrapper.__init__(self, env)
        lanes = check_count(lanes, "lanes (K, the options of a question)", minimum=2)
        if env.num_envs % lanes:
            raise ValueError(
                f"Expected num_envs to be a multiple of lanes = {lanes}, got {env.num_envs}; make the vector "
                f"environment with num_envs = B * {lanes} for B episodes at once."
            )
        check_oracle(oracle)
        self.lanes = lanes
        self.groups = int(env.num_envs) // self.lanes
        self.oracle = oracle
        self.feedback = check_feedback(feedback)
        self._base = base_environment(env)
        check_shows(self._base, feedback)
        self._tracker = LaneTracker(env)
        self._previous: Any = None
        self._setting: dict[str, Any] | None = None
        self.clear()

    def clear(self) -> None:
        """Forget all questions so far; episode numbers begin at 0 again."""
        self._answered: list[Comparisons] = []
        self._episode: NDArray[np.int64] = np.full(self.groups, -1, dtype=np.int64)
        self._next_episode = 0

    @property
    def comparisons(self) -> Comparisons:
        """All answered questions since construction or ``clear()``, in the order in which they were asked.

        Where the oracle changed how it answers (its scale, its model), the metadata list each way under ``parts``.

        Raises:
            RuntimeError: If nothing was answered yet.
        """
        if not self._answered:
            raise RuntimeError(
                "No question was answered yet; step the environment first, and look at infos['preference'] for "
                "questions that the oracle left without an answer (-1)."
            )
        runs = groupby(self._answered, key=lambda part: part.metadata)
        self._answered = [Comparisons.concatenate(list(run)) for _, run in runs]
        return self._answered[0] if len(self._answered) == 1 else Comparisons.concatenate(self._answered)

    @property
    def episode_start(self) -> NDArray[np.bool_]:
        """Lanes whose next step is the first action of an episode, (num_envs,); right in every autoreset mode.

        Pass it to an agent's ``predict``. (In mode NEXT_STEP ``terminations`` come one step too early for that: the
        next step only resets.)
        """
        return self._tracker.episode_start

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all lanes, or whole groups of lanes by ``options["reset_mask"]``."""
        mask = self._tracker.reset_mask(options)
        if mask.shape == (self.num_envs,):
            grouped = mask.reshape(self.groups, self.lanes)
            split = np.flatnonzero(grouped.any(axis=1) != grouped.all(axis=1))
            if split.size:
                raise ValueError(
                    f"Expected reset_mask to reset all {self.lanes} lanes of a group or none, group {split[0]} is "
                    "reset in part; its options would be at different steps."
                )
        observations, infos = self.env.reset(seed=seed, options=options)
        self._tracker.reset(mask)
        self._previous = np.array(observations)
        return observations, infos

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all lanes, then ask one question for every group that acted ("prompt": that ended its episode).

        Returns:
            Gymnasium's five values; the rewards are the preferences.

        Raises:
            RuntimeError: If the lanes of a group are at different steps of their episodes.
            TypeError, ValueError: If the oracle returns what is no answer to the questions.
        """
        observations, _, terminations, truncations, infos = self.env.step(actions)
        # stored before asking: an oracle may raise, and the next question must not depend on that
        previous, self._previous = self._previous, np.array(observations)
        reached = self._tracker.step(observations, terminations, truncations, infos)
        groups = self._groups_to_ask()
        choices = np.full(self.groups, -1, dtype=np.int64)
        rewards = np.zeros(self.num_envs)
        if groups.size:
            lanes = (groups[:, None] * self.lanes + np.arange(self.lanes)).ravel()
            features, texts = self._options(reached[lanes], previous[lanes], np.asarray(actions)[lanes])
            choices[groups] = self._ask(groups, features, texts)
            answered = np.flatnonzero(choices >= 0)
            rewards[answered * self.lanes + choices[answered]] = 1.0
            if texts is not None:
                question = np.full((self.groups, self.lanes), None, dtype=object)
                question[groups] = np.array(texts, dtype=object).reshape(-1, self.lanes)
                infos["question"] = question
        infos["_question"] = np.isin(np.arange(self.groups), groups)
        infos["preference"], infos["_preference"] = choices, choices >= 0
        return observations, rewards, terminations, truncations, infos

    def _groups_to_ask(self) -> NDArray[np.intp]:
        """Groups whose lanes all acted, for complete prompts those that also ended; raises if lanes are out of step."""
        acted = self._tracker.acted.reshape(self.groups, self.lanes)
        steps = self._tracker.step_index.reshape(self.groups, self.lanes)
        apart = (acted.any(axis=1) != acted.all(axis=1)) | (acted.all(axis=1) & (np.ptp(steps, axis=1) > 0))
        ended = self._tracker.ended.reshape(self.groups, self.lanes)
        if self.feedback == "prompt":  # lanes that go on without the others never make a question
            apart |= ended.any(axis=1) != ended.all(axis=1)
        if apart.any():
            group = int(np.argmax(apart))
            raise RuntimeError(
                f"Expected the {self.lanes} lanes of group {group} to be at the same step and to end together, got "
                f"steps {steps[group].tolist()}: their episodes have different lengths. Use a fixed horizon."
            )
        return np.flatnonzero((ended if self.feedback == "prompt" else acted).all(axis=1))

    def _options(
        self, reached: NDArray[Any], previous: NDArray[Any], actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], list[str] | None]:
        """Features (n, d) and texts (n,) of the given lanes' options."""
        base = self._base
        features = shown_features(base, self.feedback, reached=reached, previous=previous, actions=actions)
        kind = "state_texts" if self.feedback == "state" else "trajectory_texts"
        # texts of a state stand beside its own features only, not beside those of a pair of the MDP
        has_texts = hasattr(base, kind) and (self.feedback != "state" or hasattr(base, "state_features"))
        return features, getattr(base, kind)(reached) if has_texts else None

    def _ask(
        self, groups: NDArray[np.intp], features: NDArray[np.float32], texts: list[str] | None
    ) -> NDArray[np.int64]:
        """Ask the oracle one question for each group and store the answers."""
        steps = self._tracker.step_index[groups * self.lanes]
        # an episode is numbered at its first question: at step 0, later after clear(), last for complete prompts
        for group in groups[(steps == 0) | (self._episode[groups] < 0) | (self.feedback == "prompt")]:
            self._episode[group] = self._next_episode
            self._next_episode += 1
        number = groups.size
        grouped = None
        if texts is not None:
            grouped = [texts[start : start + self.lanes] for start in range(0, number * self.lanes, self.lanes)]
        queries = Queries(
            features=features.reshape(number, self.lanes, -1),
            episode=self._episode[groups],
            step=steps,
            texts=grouped,
        )
        answers = answers_of(self.oracle, queries)
        answered = Comparisons(
            features=queries.features,
            responses=answers.responses,
            episode=queries.episode,
            step=queries.step,
            texts=grouped,
            who=self.oracle.name,
            # numpy's own "now" is rounded to seconds
            answered_at=np.full(number, np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us")),
            metadata=self._origin(answers.details),
        ).answered
        if len(answered):
            self._answered.append(answered)
        return answers.choices

    def _origin(self, details: dict[str, Any]) -> dict[str, Any]:
        """What produced the answers: environment, encoder and feedback, and how the oracle answered this time."""
        if self._setting is None:
            spec = self.env.unwrapped.spec or getattr(self._base, "spec", None)
            self._setting = {"feedback": self.feedback, "lanes": self.lanes}
            self._setting["environment"] = type(self._base).__name__ if spec is None else spec.id
            encoder = getattr(self._base, "encoder", None)
            if encoder is not None:
                self._setting |= {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
            words = getattr(getattr(self._base, "vocabulary", None), "fingerprint", None)
            if words is not None:
                self._setting["vocabulary_fingerprint"] = words
            maps = getattr(self._base, "feature_maps", ())
            if maps:
                self._setting["feature_map"] = list(maps)
        describe = getattr(self.oracle, "describe", None)
        described = describe() if callable(describe) else {"name": self.oracle.name}
        return {**self._setting, "oracle": {**details, **described}}
