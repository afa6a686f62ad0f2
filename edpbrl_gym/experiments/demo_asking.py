"""The two sessions that the demo compares, one on each core: adaptive questions and random ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_blas_thread, one_torch_thread
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.likelihood import ResponseModel, make_response_model
from edpbrl_gym.planners import PromptFeatures, make_planner
from edpbrl_gym.planners.registry import PLANNERS
from edpbrl_gym.session import Session, run

if TYPE_CHECKING:
    from edpbrl_gym.experiments.demo_settings import DemoSettings
    from edpbrl_gym.oracles import Oracle
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["ADAPTIVE", "RANDOM", "Asked", "Asking"]

_PLANNERS = {PLANNERS[name].title: name for name in ("adaptive", "random")}
ADAPTIVE, RANDOM = _PLANNERS
_CHECKPOINTS = 5  # points of a learning curve
_PAPER_REGULARIZATION = 100.0  # lambda of the ridge in the paper's experiments

Say = Callable[[str, dict[str, Any]], object]


@dataclass(frozen=True)
class Asked:
    """What a session has learnt.

    Attributes:
        thetas: The estimates by the number of questions answered, (d,) each; the last is from all answers.
        plain: The same for the paper's ridge, lambda = 100, from the same answers.
        steps: The steps for ``say``, in their order.
    """

    thetas: dict[int, NDArray[np.float64]]
    plain: dict[int, NDArray[np.float64]]
    steps: list[tuple[str, dict[str, Any]]]

    @property
    def theta(self) -> NDArray[np.float64]:
        """The estimate from all answers."""
        return self.thetas[max(self.thetas)]


class Asking:
    """Asks a simulated user the same number of questions in two ways.

    Args:
        settings: Settings of the demo.
        words: Vocabulary of the questions.
        make_user: Makes a new user, always the same.
        make_encoder: Makes a new encoder with a memo of the same texts. Each session has its own, so that the batches,
            and with them the last bits of the embeddings, don't depend on which is faster.
    """

    def __init__(
        self,
        settings: DemoSettings,
        words: Vocabulary,
        make_user: Callable[[], Oracle],
        make_encoder: Callable[[], MemoEncoder],
    ) -> None:
        self.settings, self.words = settings, words
        self._make_user, self._make_encoder = make_user, make_encoder
        self._model = response_model(settings)

    def run(self, beside: Callable[[], object], say: Say) -> dict[str, Asked]:
        """Ask and estimate.

        Adaptive questions wait for each other's answers and keep one core busy; the other one does the rest.

        Args:
            beside: More work for the other core.
            say: Called after every step, see `run_demo`.

        Returns:
            What each session has learnt, by its planner's title, adaptive first.
        """
        encoder = self._make_encoder()
        tokens = encoder.encode(self.words.all_tokens)
        features = PromptFeatures(self.words, tokens, encoder)  # encodes with all cores
        with one_blas_thread(), one_torch_thread(), ThreadPoolExecutor(1) as pool:
            try:
                other = pool.submit(self._told, RANDOM, features, VocabularyPrior(tokens), say)
                extra = pool.submit(beside)
                adaptive = self._ask(ADAPTIVE, features, VocabularyPrior(tokens))
                results = {ADAPTIVE: adaptive, RANDOM: other.result()}
                extra.result()
            except BaseException:  # Ctrl-C too: cancel the work that has not started
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for step in adaptive.steps:
            say(*step)
        return results

    def _told(self, title: str, features: PromptFeatures, prior: VocabularyPrior, say: Say) -> Asked:
        result = self._ask(title, features, prior)
        for step in result.steps:
            say(*step)
        return result

    def _ask(self, title: str, features: PromptFeatures, prior: VocabularyPrior) -> Asked:
        encoder, settings = self._make_encoder(), self.settings
        options: dict[str, Any] = {"distinct": True} if title == RANDOM else {}
        planner = make_planner(
            _PLANNERS[title],
            self.words,
            features.with_encoder(encoder),
            prior=prior,
            num_options=settings.num_options,
            seed=derive_seed(settings.seed, "queries", title),
            model=self._model,
            **options,
        )
        session = Session(
            planner, vocabulary=self.words, encoder=encoder, num_options=settings.num_options, feedback="prompt"
        )
        last = settings.questions
        checkpoints = {max(1, round(last * share)) for share in np.linspace(0, 1, _CHECKPOINTS + 1)[1:]}
        thetas: dict[int, NDArray[np.float64]] = {}

        def learn(session: Session) -> None:
            if session.answered in checkpoints:
                thetas[session.answered] = np.asarray(session.estimate.theta)

        run(session, self._make_user(), last, track=learn)
        answered = session.comparisons
        ridge = GaussianPrior.isotropic(encoder.dimension, _PAPER_REGULARIZATION)
        plain = {
            count: np.asarray(estimate(answered.select(np.arange(count)), prior=ridge, model=self._model).theta)
            for count in thetas
        }
        question, response = session.transcript.questions[-1], session.transcript.responses[-1]
        facts = {
            "agent": title,
            "questions": last,
            "example": list(question.texts),
            "order": list(response.order),
            "converged": session.estimate.converged,
        }
        return Asked(thetas, plain, [("questions", facts)])


def response_model(settings: DemoSettings) -> ResponseModel:
    """The format of the user's answers."""
    return make_response_model(settings.answers)
