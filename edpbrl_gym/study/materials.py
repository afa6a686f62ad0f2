"""What a study's questions are made of: vocabulary, encoder, features and populations; loaded once, shared by all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import constructor_options
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import Population
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.likelihood import ResponseModel, make_response_model
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.planners.option_features import OptionFeatures, option_features
from edpbrl_gym.planners.registry import make_planner, planner_class, planner_options
from edpbrl_gym.planners.replay import ReplayPlanner
from edpbrl_gym.session import QuestionMaker, Session
from edpbrl_gym.session.outlook import Outlook
from edpbrl_gym.study.config import ORACLE, Arm, StudyConfig
from edpbrl_gym.study.fixed_questions import fixed_planner
from edpbrl_gym.vocabulary import BUILT_IN, Vocabulary, load_vocabulary

__all__ = ["FIXED", "Materials"]

FIXED = "questions"  # the planner of an arm with a file of questions


class _SharedEncoder:
    """An encoder used by several threads, one call at a time."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._lock = threading.Lock()
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Embeddings, (n, d)."""
        with self._lock:
            return self._encoder.encode(texts, progress=progress)


class Materials:
    """Makes the sessions of a study's participants.

    Args:
        config: Configuration of the study.
        encoder: Encoder to use; None loads the configured one.

    Raises:
        ValueError, OSError, ImportError: The vocabulary or the encoder can't be loaded.
    """

    def __init__(self, config: StudyConfig, *, encoder: TextEncoder | None = None) -> None:
        self.config = config
        self.vocabulary: Vocabulary = load_vocabulary(vocabulary_place(config))
        self.encoder: TextEncoder = _SharedEncoder(encoder or load_encoder(config.questions.encoder))
        self.model: ResponseModel = make_response_model(config.questions.format, taps=config.questions.options)
        self._populations: dict[Path, Population] = {}
        self._priors: dict[tuple[object, Path | None], Any] = {}  # shared: one takes tens of megabytes
        self._fixed: dict[Path, NDArray[np.int64]] = {}  # tokens of files of questions
        self._lock = threading.RLock()

    @cached_property
    def features(self) -> OptionFeatures:
        """Features of the options, shared by all planners."""
        tokens = self.encoder.encode(self.vocabulary.all_tokens, progress=True)
        return option_features(self.config.questions.feedback, self.vocabulary, tokens, self.encoder)

    @cached_property
    def maker(self) -> QuestionMaker:
        """Maker of the questions."""
        return QuestionMaker(self.vocabulary, self.encoder, self.config.questions.feedback)

    def population(self, arm: Arm) -> Population | None:
        """The population of an arm, or None.

        Raises:
            ValueError: The file is damaged, or about the features of another encoder.
        """
        if arm.prior is None:
            return None
        with self._lock:
            if arm.prior not in self._populations:
                self._populations[arm.prior] = self._loaded(arm.prior)
            return self._populations[arm.prior]

    def _loaded(self, place: Path) -> Population:
        population = Population.load(place)
        known = population.provenance.get("encoder_fingerprint")
        if population.dimension != self.encoder.dimension or known not in (None, self.encoder.fingerprint):
            raise ValueError(
                f"Expected a population about {self.encoder.dimension} features of the encoder {self.encoder.name} in "
                f"{place}, got one about {population.dimension} features of {population.provenance.get('encoder')}"
            )
        return population

    def _prior(self, arm: Arm, words: Callable[[NDArray[np.float32]], Any]) -> Any:
        """The prior of an arm: its population, which falls back on the prior of the tokens, or that prior alone."""
        with self._lock:
            key = (words, arm.prior)
            if key not in self._priors:
                population = self.population(arm)
                if population is None:
                    self._priors[key] = words(np.asarray(self.features.token_features))
                elif population.fallback is None:
                    self._priors[key] = population.with_fallback(words(np.asarray(self.features.token_features)))
                else:
                    self._priors[key] = population
            return self._priors[key]

    def planner(self, arm: Arm, number: int) -> Planner:
        """A new planner of an arm for the participant with a number.

        Raises:
            TypeError, ValueError, ImportError: The planner can't be made with these options; the message says why.
        """
        questions = self.config.questions
        if arm.planner == ORACLE:
            raise ValueError(f"Expected an arm with a planner, the questions of {arm.name!r} come from HumanOracle")
        if arm.planner == FIXED:
            assert arm.file is not None  # checked with the configuration
            with self._lock:
                if arm.file not in self._fixed:
                    planner = fixed_planner(arm.file, self.vocabulary, questions.feedback, questions.options)
                    self._fixed[arm.file] = planner.tokens
            return ReplayPlanner(self._fixed[arm.file], distinct=True)
        options: dict[str, Any] = dict(arm.options)
        if "distinct" in planner_options(arm.planner):
            options["distinct"] = True  # people never compare an option with itself
        cls, prior = planner_class(arm.planner), self.population(arm)
        if "prior" in constructor_options(cls):
            prior = self._prior(arm, cls.default_prior if prior is None else VocabularyPrior)
        return make_planner(
            arm.planner,
            self.vocabulary,
            self.features,
            feedback=questions.feedback,
            prior=prior,
            num_options=questions.options,
            seed=derive_seed(self.config.seed, "planner", number),
            episodes=-(-questions.number // (1 if questions.feedback == "prompt" else self.vocabulary.horizon)),
            model=None if questions.format == "best" else self.model,
            **options,
        )

    def session(self, arm: Arm, number: int) -> Session:
        """A new session of the participant with a number; as for ``planner``."""
        return Session(
            lambda: self.planner(arm, number),
            vocabulary=self.vocabulary,
            encoder=self.encoder,
            num_options=self.config.questions.options,
            feedback=self.config.questions.feedback,
            model=self.model,
            prior=self._prior(arm, Outlook.words_prior),
            stopping=self.config.questions.stopping,
            seed=derive_seed(self.config.seed, "session", number) % 2**32,
        )


def vocabulary_place(config: StudyConfig) -> str | Path:
    """A built-in vocabulary, or a folder relative to that of the study."""
    name = config.questions.vocabulary
    return name if name in BUILT_IN else config.folder / name
