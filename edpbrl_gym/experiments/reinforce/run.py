"""Train K language models as query policies, measure the result, and learn tastes from their questions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import ENVIRONMENT, draw_questions, make_prompt_lanes
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run, Unit, run_experiment, text_inputs
from edpbrl_gym.experiments.reinforce.measuring import (
    between_policy_similarity,
    learn_tastes,
    map_prompts,
    perplexity,
)
from edpbrl_gym.experiments.reinforce.report import make_report
from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.policies import make_policies
from edpbrl_gym.language.rollouts import PLAYING, Rollout, roll_out
from edpbrl_gym.language.trainer import train
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from edpbrl_gym.language.model import LanguageModel
    from edpbrl_gym.language.policies import Policies
    from edpbrl_gym.language.training_log import TrainingLog

__all__ = ["REINFORCE", "run_reinforce"]

ARMS = {"base": True, "trained": False}  # name -> whether all prompts come from the base model
# purposes of the random streams of the rollouts; set i of questions of the tastes uses _TASTES + i
_SIMILARITY, _MAP, _LIKELY, _TASTES = 0, 1, 2, 3
_REPEAT_PROMPTS = 10  # of each policy in a repeat of the similarity, as in the paper
_LIKELY_PROMPTS = 64  # of each policy, whose perplexity is measured


def run_reinforce(
    settings: ReinforceExperiment,
    out: str | os.PathLike[str],
    *,
    device: str | None = None,
    tensorboard: bool = False,
    callback: Callable[[TrainingLog], None] | None = None,
    say: Callable[[str], object] = lambda step: None,
) -> Results:
    """Run or resume the experiment, as ``run_experiment``, in this process.

    ``device`` is that of the language models (None: "cuda" if available); ``tensorboard`` writes scalars of the
    training to OUT/training/tensorboard. ``callback`` is called by the training after every iteration, ``say`` before
    each stage: "training", "similarity", "map", "perplexity", "tastes".
    """
    language = load_language_model(settings.model, device=device)
    reinforce = replace(
        REINFORCE,
        inputs=functools.partial(_inputs, language=language),
        prepare=functools.partial(_prepare, language=language, callback=callback, tensorboard=tensorboard, say=say),
    )
    return run_experiment(reinforce, settings, out, jobs=1)


class _Trained(NamedTuple):
    """The trained policies, and the encoder of their prompts."""

    settings: ReinforceExperiment
    policies: Policies
    encoder: TextEncoder


_Prepared = tuple[_Trained, "TrainingLog", Callable[[str], object]]  # and who is told of each stage


def _inputs(settings: ReinforceExperiment, language: LanguageModel) -> Inputs:
    import torch

    inputs = text_inputs(settings, cache=False)  # generated prompts hardly ever recur, so they are not stored
    assert inputs.vocabulary is not None
    sizes = inputs.vocabulary.sizes
    if min(sizes) < settings.num_options:  # reported now, not after hours of training
        raise ValueError(f"Expected a vocabulary with at least K = {settings.num_options} tokens a step, got {sizes}")
    notes = {
        "model": language.name,
        "parameters": sum(parameter.numel() for parameter in language.model.parameters()),
        "device": str(language.device),
        "torch_threads": torch.get_num_threads(),  # rounding depends on it
    }
    config = {**inputs.config, "model_fingerprint": language.fingerprint}
    return replace(inputs, config=config, notes={**inputs.notes, **notes})


def _prepare(
    run: Run,
    todo: list[Unit],
    language: LanguageModel,
    callback: Callable[[TrainingLog], None] | None,
    tensorboard: bool,
    say: Callable[[str], object],
) -> _Prepared:
    """Train the policies, or read those of a finished training."""
    say("training")
    settings: ReinforceExperiment = run.settings
    options: dict[str, Any] = {"rank": settings.rank} if settings.kind == "adapters" else {}
    seed, folder = settings.training.seed, run.folder.path / "training"
    policies = make_policies(language, settings.num_options, kind=settings.kind, seed=seed, **options)
    history = train(policies, run.encoder, settings.training, folder=folder, callback=callback, tensorboard=tensorboard)
    return _Trained(settings, policies, run.encoder), history, say


def _run_unit(settings: ReinforceExperiment, unit: Unit, folder: Path, prepared: _Prepared) -> list[dict[str, Any]]:
    trained, history, say = prepared
    if unit.part == "training":
        return _training(history)
    say(unit.part)
    # a new memo, so that the batches of a stage are the same whether the run was resumed or not
    rows = _STAGES[unit.part](trained._replace(encoder=MemoEncoder(trained.encoder)))
    if unit.part == "tastes":
        _save_tastes(rows, folder, trained.encoder, load_vocabulary(settings.vocabulary))
    return rows


def _save_tastes(rows: list[dict[str, Any]], folder: Path, encoder: TextEncoder, words: Vocabulary) -> None:
    """Save each user's taste from the first set of the trained policies' questions, for `edpbrl personalize`."""
    largest = max(row["questions"] for row in rows)
    for row in rows:
        if (row["arm"], row["set"], row["estimator"], row["questions"]) == ("trained", 0, "words", largest):
            answers = row["mode"] if row["mode"] == "argmax" else f"scale-{row['scale']:g}"
            about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "questions": largest}
            about |= {"user": row["user"], "answers": answers, "asked_by": "policies of `edpbrl reproduce reinforce`"}
            save_taste(
                folder / "tastes" / f"{row['user']}-{answers}.safetensors",
                np.asarray(row["theta"], dtype=np.float64),
                about,
                vocabulary=words,
            )


def _training(history: TrainingLog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"part": "train", **asdict(entry)} for entry in history.iterations]
    assert history.base is not None
    for part, entry in [*(("evaluation", entry) for entry in history.evaluations), ("base", history.base)]:
        row = {"part": part, "iteration": entry.iteration, "objective": entry.mean}
        rows.append(row | {"standard_error": entry.standard_error, "values": list(entry.values)})
    return rows


def _play(trained: _Trained, purpose: int, episodes: int, repeats: int = 1) -> Iterator[tuple[str, Rollout]]:
    """The prompts of each arm; ``purpose``: of which random streams."""
    settings, policies, encoder = trained
    sizes = {"episodes": episodes, "meta_samples": repeats, "iteration": purpose}
    for arm, base in ARMS.items():
        yield arm, roll_out(policies, encoder, settings.training, purpose=PLAYING, base=base, **sizes)


def _similarity(trained: _Trained) -> list[dict[str, Any]]:
    rows = []
    for arm, rollout in _play(trained, _SIMILARITY, _REPEAT_PROMPTS, trained.settings.repeats):
        complete = np.moveaxis(rollout.features[..., -1, :], 1, 2)  # (R, n, K, d) to (R, K, n, d)
        for repeat, value in enumerate(between_policy_similarity(complete)):
            rows.append({"part": "similarity", "arm": arm, "repeat": repeat, "similarity": float(value)})
    return rows


def _map(trained: _Trained) -> list[dict[str, Any]]:
    """One t-SNE map of the prompts of base and trained policies; with the prompts as text."""
    rows: list[dict[str, Any]] = []
    embeddings = []
    for arm, rollout in _play(trained, _MAP, trained.settings.map_prompts):
        embeddings.append(np.moveaxis(rollout.features[0, :, :, -1], 0, 1).reshape(-1, rollout.features.shape[-1]))
        for policy, texts in enumerate(rollout.texts):
            rows += [{"part": "map", "arm": arm, "policy": policy, "prompt": prefixes[-1]} for prefixes in texts]
    positions = map_prompts(np.concatenate(embeddings), seed=trained.settings.training.seed)
    for row, (x, y) in zip(rows, positions, strict=True):
        row |= {"x": float(x), "y": float(y)}
    return rows


def _perplexity(trained: _Trained) -> list[dict[str, Any]]:
    """Perplexity under the base model of the prompts of each policy, and of the base model's own."""
    rows = []
    for arm, rollout in _play(trained, _LIKELY, _LIKELY_PROMPTS):
        for policy, samples in enumerate(rollout.samples):
            with trained.policies.base_model() as model:
                value = perplexity(model, samples, batch_size=trained.settings.training.batch_size)
            rows.append({"part": "perplexity", "arm": arm, "policy": policy, "perplexity": value})
    return rows


def _tastes(trained: _Trained) -> list[dict[str, Any]]:
    """Errors of the tastes learnt from each arm's questions, for several sets of questions."""
    settings, _, encoder = trained
    words, seed = load_vocabulary(settings.vocabulary), settings.training.seed
    rng = np.random.default_rng(derive_seed(seed, "judge"))
    # no token is held out, as a language model may have learnt any of them; only the prompts are new to all arms
    sample = sample_pairs(words.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    prior = VocabularyPrior(encoder.encode(words.all_tokens))
    prompts = encoder.encode([words.prompt(row) for row in sample.tokens.tolist()])
    users = {name: encoder.encode([text])[0].astype(np.float64) for name, text in settings.users.items()}
    rows: list[dict[str, Any]] = []
    episodes = -(-max(settings.counts) // settings.training.words)  # of H questions each
    for number in range(settings.taste_seeds):
        questions = {arm: _questions(rollout) for arm, rollout in _play(trained, _TASTES + number, episodes)}
        questions["random"] = _random_questions(settings, encoder, number)
        errors = learn_tastes(
            questions, users, settings.counts, prior, (prompts, sample.pairs), derive_seed(seed, "tastes", number)
        )
        rows += [{"part": "taste", "set": number, **row} for row in errors]
    return rows


def _questions(rollout: Rollout) -> Queries:
    """The questions of a rollout of one meta-sample, episode by episode, word by word."""
    _, episodes, policies, words, dimension = rollout.features.shape
    features = rollout.features[0].swapaxes(1, 2).reshape(episodes * words, policies, dimension)
    return Queries(features, np.repeat(np.arange(episodes), words), np.tile(np.arange(words), episodes))


def _random_questions(settings: ReinforceExperiment, encoder: TextEncoder, number: int) -> Queries:
    """Random partial prompts of the vocabulary: the baseline of the other experiments."""
    arguments: dict[str, Any] = {"vocabulary": settings.vocabulary, "encoder": settings.encoder}
    env: Any = make_prompt_lanes(settings.num_options, **arguments)
    episodes = -(-max(settings.counts) // env.unwrapped.model.horizon)
    seed = derive_seed(settings.training.seed, "random questions", number)
    agent = make_agent("random", env, num_options=settings.num_options, episodes=episodes, seed=seed).learn()
    questions = draw_questions(ENVIRONMENT, agent, episodes=episodes, env_arguments=arguments, distinct=False).questions
    rows = encoder.encode([text for _, _, texts in questions for text in texts])
    features = rows.reshape(len(questions), settings.num_options, -1)
    return Queries(features, np.array([row[0] for row in questions]), np.array([row[1] for row in questions]))


_STAGES = {"similarity": _similarity, "map": _map, "perplexity": _perplexity, "tastes": _tastes}

REINFORCE = Experiment(
    kind="reinforce",
    command="edpbrl reproduce reinforce",
    settings=ReinforceExperiment,
    plan=lambda settings: [Unit(name) for name in ("training", *_STAGES)],
    run_unit=_run_unit,
    report=make_report,
)
