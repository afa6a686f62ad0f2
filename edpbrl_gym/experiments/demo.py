"""The whole workflow in half a minute: what the same number of answers teaches, asked the paper's way and ours."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym._threads import one_blas_thread, one_torch_thread
from edpbrl_gym.agents import make_agent
from edpbrl_gym.collection.collect import collect, make_prompt_lanes
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.metrics import preference_error
from edpbrl_gym.estimation.other_texts import other_texts
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.experiments.demo_report import OURS, PAPER, SHOWN, TRUTH, make_report
from edpbrl_gym.experiments.framework import Experiment, Run, Unit, run_experiment, text_inputs
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.settings import DemoSettings
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize.search import best_prompts, random_prompts
from edpbrl_gym.planners import PromptFeatures, make_planner
from edpbrl_gym.session import Session, run

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.estimation.taste_prior import TastePrior
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["DEMO", "run_demo"]

_PAPER_OPTIONS = 4  # K of the paper's questions
_DESIGN: dict[str, Any] = {"criterion": "V", "regularization": 100.0}  # the paper's
_RIDGE = 1.0  # lambda of its estimate; with 100, as in the paper, more preferences were wrong on development sentences
_SCALE = 20.0  # of the users' answers
_CHECKPOINTS = 3  # points of a learning curve
_POPULATION = 300  # random prompts among which those that are written are judged
_PAIRS = 3000  # of them, on which tastes are judged

Say = Callable[[str, dict[str, Any]], object]
_Theta = NDArray[np.float64]


def run_demo(
    settings: DemoSettings,
    out: str | os.PathLike[str],
    *,
    say: Say = lambda step, facts: None,
    progress: bool = False,
) -> Results:
    """Run the demo, as ``run_experiment``; that of an earlier run of the same settings is run again.

    ``say`` is called after each step with its name ("vocabulary", "question", "user") and facts about it. Parts of the
    results: "curve" of the wrong preferences against the number of answers, and "best", the prompt that each way of
    asking would write for a user, with its true score, beside the one that is found where the taste is known.
    """
    demo = replace(DEMO, run_unit=functools.partial(_run_unit, say=say))
    return run_experiment(demo, settings, out, jobs=1, progress=progress)


def _run_unit(settings: DemoSettings, unit: Unit, folder: Path, run: Run, say: Say = lambda step, facts: None) -> Any:
    words = run.vocabulary
    say("vocabulary", {"steps": list(words.names), "tokens": sum(words.sizes), "prompts": math.prod(words.sizes)})
    shown = random_prompts(words, _POPULATION, generator(settings.seed, "population"))
    texts = list(dict.fromkeys([*words.all_tokens, *settings.text]))
    # not the disk cache around the encoder: random prompts don't recur, so they are not stored
    memo = MemoEncoder(getattr(run.encoder, "encoder", run.encoder), texts=texts, rows=run.encoder.encode(texts))
    judged = memo.encode(shown).astype(np.float64)
    pairs = generator(settings.seed, "pairs").permuted(np.tile(np.arange(_POPULATION), (_PAIRS, 1)), axis=1)[:, :2]
    tokens = memo.encode(words.all_tokens)
    prior = make_prior("words", tokens, others=other_texts(words, run.encoder))
    workshop = _Workshop(settings, words, memo, judged, pairs, prior, PromptFeatures(words, tokens, memo))
    users = workshop.users()
    rows: list[dict[str, Any]] = []
    prior.think()  # with all cores: everybody's first estimate needs it
    # questions of a user wait for each other's answers and keep one core busy
    with one_blas_thread(), one_torch_thread(), ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as beside:
        try:
            designed = beside.submit(workshop.designed)
            work = [pool.submit(workshop.compare, user, designed, number) for number, user in enumerate(users)]
            for number, (user, done) in enumerate(zip(users, work, strict=True)):
                compared = done.result()
                if number == 0:
                    say("question", compared.example)
                ends = {row["way"]: row["wrong"] for row in compared.rows if row.get("answers") == settings.questions}
                say("user", {"number": number, "of": len(users), "text": user.name, **ends})
                rows += compared.rows
        except BaseException:  # Ctrl-C too: cancel the work that has not started
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    run.folder.note(users=[user.describe() for user in users])
    return rows


class _Compared(NamedTuple):
    """A user asked in both ways."""

    rows: list[dict[str, Any]]
    example: dict[str, Any]  # the last question of our way, with its answer


class _Workshop(NamedTuple):
    """What all users share."""

    settings: DemoSettings
    words: Vocabulary
    memo: MemoEncoder
    judged: _Theta  # features of the random prompts, (n, d)
    pairs: NDArray[np.int64]  # of these, (p, 2)
    prior: TastePrior
    features: PromptFeatures

    def encoder(self) -> MemoEncoder:
        """A new one for each user, so that batches, and with them the last bits, don't depend on which is faster."""
        known = [*self.words.all_tokens, *self.settings.text]
        return MemoEncoder(self.memo.encoder, texts=known, rows=self.memo.encode(known))

    def users(self) -> list[SyntheticUser]:
        """Who answers, from the beginning of their draws."""
        return [
            SyntheticUser.from_text(
                text,
                self.memo,
                mode="sampled",
                scale=_SCALE,
                seed=derive_seed(self.settings.seed, "user", number),
                name=text,
            )
            for number, text in enumerate(self.settings.text)
        ]

    def designed(self) -> list[Comparisons]:
        """The paper's way: every user answers questions of its design, one at each step of a prompt."""
        settings, episodes = self.settings, math.ceil(self.settings.questions / self.words.horizon)
        lanes: Any = make_prompt_lanes(
            episodes * _PAPER_OPTIONS, vocabulary=settings.vocabulary, encoder=settings.encoder
        )
        lanes.unwrapped.model.use_encoder(self.memo)
        agent = make_agent(
            "newton", lanes, num_options=_PAPER_OPTIONS, episodes=episodes, seed=settings.seed, **_DESIGN
        ).learn()
        answered = [
            collect(lanes, agent, user, episodes=episodes, seed=number) for number, user in enumerate(self.users())
        ]
        lanes.close()
        return answered

    def compare(self, user: SyntheticUser, designed: Future[list[Comparisons]], number: int) -> _Compared:
        """Ask a user our way, and compare with what the answers to the paper's questions teach."""
        settings, encoder = self.settings, self.encoder()
        checkpoints = sorted({max(1, round(settings.questions * i / _CHECKPOINTS)) for i in range(1, _CHECKPOINTS + 1)})
        planner = make_planner(
            "adaptive",
            self.words,
            self.features.with_encoder(encoder),
            prior=self.prior,
            num_options=settings.num_options,
            seed=derive_seed(settings.seed, "questions", number),
        )
        session = Session(planner, vocabulary=self.words, encoder=encoder, feedback="prompt")
        ours: dict[int, _Theta] = {}

        def learn(session: Session) -> None:
            if session.answered in checkpoints:
                ours[session.answered] = np.asarray(session.estimate.theta)

        run(session, user, settings.questions, track=learn)
        last = session.transcript.questions[-1]
        example = {"texts": last.texts, "chosen": session.comparisons.choice[-1], "likes": user.name}
        paper = designed.result()[number]
        theirs = {
            count: np.asarray(estimate(paper.select(np.arange(count)), regularization=_RIDGE).theta)
            for count in checkpoints
        }
        rows = self._curves(user, {PAPER: theirs, OURS: ours})
        if number >= SHOWN:
            return _Compared(rows, example)
        last_of = {PAPER: theirs[settings.questions], OURS: ours[settings.questions], TRUTH: user.theta}
        return _Compared(rows + [self._best(user, way, theta, encoder) for way, theta in last_of.items()], example)

    def _curves(self, user: SyntheticUser, ways: dict[str, dict[int, _Theta]]) -> list[dict[str, Any]]:
        return [
            {
                "part": "curve",
                "user": user.name,
                "way": way,
                "answers": count,
                "wrong": preference_error(theta, user.theta, self.judged, self.pairs),
            }
            for way, thetas in ways.items()
            for count, theta in thetas.items()
        ]

    def _best(self, user: SyntheticUser, way: str, theta: _Theta, encoder: MemoEncoder) -> dict[str, Any]:
        [found] = best_prompts(self.words, encoder, theta, method="model", count=1)
        score = float(encoder.encode([found.text])[0].astype(np.float64) @ user.theta)
        better = float(100.0 * np.mean(self.judged @ user.theta < score))
        return {
            "part": "best", "user": user.name, "way": way, "prompt": found.text, "score": score, "percentile": better,
        }  # fmt: skip


DEMO = Experiment(
    kind="demo",
    command="edpbrl demo",
    settings=DemoSettings,
    plan=lambda settings: [Unit("demo")],
    inputs=text_inputs,
    prepare=lambda run, todo: run,
    run_unit=_run_unit,
    report=make_report,
    resumes=False,
)
