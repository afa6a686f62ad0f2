"""What a study's questions are made of: vocabulary, encoder, features and populations; loaded once, shared by all."""

from __future__ import annotations

import copy
import heapq
import itertools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import constructor_options
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.estimation.items import ItemsPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.other_texts import OtherTexts, other_texts
from edpbrl_gym.estimation.priors import PRIORS, default_prior, load_prior, make_prior, prior_or_words
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.estimation.variational import normal_points
from edpbrl_gym.features import TextEncoder, as_encoder, blocks_of, embed_tokens, load_encoder, load_image_encoder
from edpbrl_gym.features.joined import parts_of
from edpbrl_gym.features.loading import CachedEncoder, picture_parts
from edpbrl_gym.features.minilm import MiniLMEncoder
from edpbrl_gym.likelihood import AnswerFormat
from edpbrl_gym.pictures import load_pictures
from edpbrl_gym.planners.option_features import OptionFeatures, option_features
from edpbrl_gym.planners.registry import planner_class
from edpbrl_gym.session import QuestionMaker, Session
from edpbrl_gym.session.outlook import Outlook
from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import OF_STUDY, POOL, Arm, StudyConfig
from edpbrl_gym.study.crowds import Crowds
from edpbrl_gym.vocabulary import BUILT_IN, Vocabulary, load_vocabulary
from edpbrl_gym.vocabulary.tokens import fold

if TYPE_CHECKING:
    from edpbrl_gym.study.store import Store

__all__ = ["Materials", "PriorityLock"]

_AT_ONCE = 32  # texts, about a tenth of a second with MiniLM
_TRIES = 1000  # to draw different options


class PriorityLock:
    """A lock that is given to the waiting thread with the lowest number, and among equals to the first.

    Threads of one Python process that compute at the same time only slow each other down; one after the other, half of
    them are done sooner and the others no later.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: list[tuple[int, int]] = []
        self._order = itertools.count()
        self._is_taken = False

    @contextmanager
    def held(self, priority: int) -> Iterator[None]:
        with self._condition:
            ticket = (priority, next(self._order))
            heapq.heappush(self._waiting, ticket)
            self._condition.wait_for(lambda: not self._is_taken and self._waiting[0] == ticket)
            heapq.heappop(self._waiting)
            self._is_taken = True
        try:
            yield
        finally:
            with self._condition:
                self._is_taken = False
                self._condition.notify_all()


class _SharedEncoder:
    """An encoder used by several threads, one call at a time; long calls let others in between."""

    def __init__(self, encoder: TextEncoder) -> None:
        encoder = as_encoder(encoder)
        self.encoder = encoder
        self._lock = PriorityLock()
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        size = len(texts) if progress else _AT_ONCE
        parts = []
        for start in range(0, max(1, len(texts)), max(1, size)):
            with self._lock.held(0):
                parts.append(self.encoder.encode(texts[start : start + size], progress=progress))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Materials:
    """Makes the sessions of a study's participants.

    Raises:
        ValueError, OSError, ImportError: The vocabulary or the encoder can't be loaded.
    """

    def __init__(self, config: StudyConfig, *, encoder: TextEncoder | None = None) -> None:
        self.config = config
        name, spec, drawn = config.questions.vocabulary, config.questions.encoder, None
        if name.startswith(POOL):
            pool = load_pictures(config.folder / name.removeprefix(POOL))
            self.vocabulary: Vocabulary = pool.vocabulary
            if encoder is None and (seen := picture_parts(spec)):
                drawn = pool.encoder(*map(load_image_encoder, seen))
        else:
            self.vocabulary = load_vocabulary(name if name in BUILT_IN else config.folder / name)
        encoder = encoder or load_encoder(spec, drawn=drawn)
        self._blocks = blocks_of(encoder)
        self.caches = [one for one in parts_of(encoder) if isinstance(one, CachedEncoder)]  # that processes share
        self.encoder: TextEncoder = _SharedEncoder(encoder)
        self.model: AnswerFormat = config.questions.answers
        self._made: dict[Hashable, Any] = {}  # shared: a prior takes tens of megabytes
        self._lock = threading.RLock()
        self.crowds = Crowds(self)

    def copied(self, config: StudyConfig) -> Materials:
        """Materials for another database of the same study; what is loaded is shared."""
        other = copy.copy(self)
        other.config, other.crowds = config, Crowds(other)
        return other

    def rest_on(self, store: Store) -> None:
        """Let ``crowds`` be of the people in a database, that of this study."""
        self.crowds = Crowds(self, store)

    @cached_property
    def tokens(self) -> NDArray[np.float32]:
        """Embeddings of all tokens, (N, d)."""
        return embed_tokens(self.vocabulary, self.encoder, progress=True)

    @cached_property
    def others(self) -> OtherTexts | None:
        """Other texts that say what a taste may be about."""
        return other_texts(self.vocabulary, self.encoder)

    @cached_property
    def features(self) -> OptionFeatures:
        return option_features(self.config.questions.feedback, self.vocabulary, self.tokens, self.encoder)

    @cached_property
    def maker(self) -> QuestionMaker:
        return QuestionMaker(self.vocabulary, self.encoder, self.config.questions.feedback)

    @cached_property
    def places(self) -> dict[str, int]:
        """The items of a pool by their texts."""
        return {text: place for place, text in enumerate(self.vocabulary.tokens[0])}

    @property
    def items_prior(self) -> ItemsPrior:
        """The prior of the pool, without other people.

        Raises:
            ValueError: The vocabulary has several steps, or too many items.
        """
        if self.vocabulary.horizon > 1:
            raise ValueError(
                f"Expected a pool, a vocabulary of one step, with prior = {str(OF_STUDY)!r}, got "
                f"{self.vocabulary.horizon} steps; take another prior"
            )
        made: ItemsPrior = self.once("items", lambda: ItemsPrior(self.tokens, blocks=self._blocks or None))
        return made

    @property
    def embeds(self) -> bool:
        """Whether options are embedded only when they are asked about, into ``caches``."""
        return bool(self.caches) and self.vocabulary.horizon > 1 and self.config.questions.feedback != "state"

    def load(self) -> None:
        """Load what takes seconds and is needed when people answer, so that processes forked later share it.

        That is the model that embeds options, where it is MiniLM on a CPU, and what a learnt taste is drawn with.
        """
        normal_points(1)
        for one in self.caches if self.embeds else ():
            if isinstance(one.encoder, MiniLMEncoder):
                one.encoder.preload()

    @property
    def per_episode(self) -> int:
        """Number of questions in an episode."""
        return 1 if self.config.questions.feedback == "prompt" else self.vocabulary.horizon

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` gives at the first call with this key; shared by all sessions."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def draw_options(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Tokens of different options: complete prompts, (K, H), or for "state" feedback of the first step, (K, 1)."""
        sizes, count = self.vocabulary.sizes, self.config.questions.options
        if self.config.questions.feedback == "state":
            sizes = sizes[:1]
        for _ in range(_TRIES):
            tokens = np.stack([rng.integers(sizes) for _ in range(count)])
            if len({fold(text) for text in self.maker.texts(tokens)}) == count:
                return tokens
        raise ValueError(f"Expected a vocabulary with {count} different options, got one of sizes {sizes}")

    def given_prior(self, arm: Arm) -> TastePrior | None:
        """The prior that an arm names, by its name or its file; None: it names none."""
        path = arm.prior
        if path is None or isinstance(path, TastePrior):
            return path
        return self.items_prior if path == OF_STUDY else self.once(("given", path), lambda: self._given(path))

    def _given(self, path: Path) -> TastePrior:
        if path.name in PRIORS:
            return make_prior(path.name, self.tokens, blocks=self._blocks, others=self.others)
        found = load_prior(path)
        known = found.provenance.get("encoder_fingerprint")
        if found.inputs != self.encoder.dimension or known not in (None, self.encoder.fingerprint):
            raise ValueError(
                f"Expected a population about {self.encoder.dimension} features of the encoder {self.encoder.name} in "
                f"{path}, got one about {found.inputs} features of {found.provenance.get('encoder')}"
            )
        return found

    def prior(self, arm: Arm, words: Callable[[NDArray[np.float32], OtherTexts | None], Any]) -> Any:
        """The prior that an arm names, else that of the tokens, on which a population falls back."""
        if isinstance(arm.prior, TastePrior):
            return arm.prior
        return self.once(
            ("prior", words, arm.prior),
            lambda: prior_or_words(self.given_prior(arm), partial(words, self.tokens), self.others),
        )

    def planner_prior(self, arm: Arm) -> TastePrior:
        """The prior of an arm's planner: the one that the arm names, else the planner's default."""
        if arm.prior is not None:
            return cast(TastePrior, self.prior(arm, _words))
        cls, pool = planner_class(arm.planner), self.vocabulary.horizon == 1
        return cast(
            TastePrior,
            self.once(
                ("default", cls),
                lambda: cls.default_prior(self.tokens, self._blocks, pool=pool, others=self.others),
            ),
        )

    def estimate_prior(self, tokens: NDArray[np.float32], others: OtherTexts | None = None) -> TastePrior:
        """The default of `edpbrl estimate` for these embeddings."""
        name = default_prior(self._blocks, len(tokens) if self.vocabulary.horizon == 1 else 0)
        return make_prior(name, tokens, blocks=self._blocks, others=others)

    def _judge(self, arm: Arm) -> TastePrior | None:
        """The prior of a session's intervals and forecasts; None: that of its planner, or nothing is forecast."""
        if not kind_of(arm).learns:
            return None
        if arm.prior is None and "prior" in constructor_options(planner_class(arm.planner)):
            default = self.planner_prior(arm)
            if default.space:  # about features of its own
                return default
        return cast(TastePrior, self.prior(arm, Outlook.words_prior))

    def session(self, arm: Arm, number: int) -> Session:
        """A new session of the participant with a number; as for ``ArmKind.planner``."""
        return Session(
            lambda: kind_of(arm).planner(arm, self, number),
            vocabulary=self.vocabulary,
            encoder=self.encoder,
            num_options=self.config.questions.options,
            feedback=self.config.questions.feedback,
            model=self.model,
            prior=self._judge(arm),
            stopping=self.config.questions.stopping,
            seed=derive_seed(self.config.seed, "session", number) % 2**32,
        )


def _words(tokens: NDArray[np.float32], others: OtherTexts | None) -> VocabularyPrior:
    return VocabularyPrior(tokens, others=others)
