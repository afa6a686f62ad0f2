"""Train K language models as query policies, measure the result, and learn tastes from their questions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import ENVIRONMENT, draw_questions, make_prompt_lanes
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run, run_experiment
from edpbrl_gym.experiments.reinforce.measuring import between_policy_similarity, map_prompts, perplexity
from edpbrl_gym.experiments.reinforce.report import make_report
from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment
from edpbrl_gym.experiments.reinforce.tastes import EvaluationPrompts, learn_tastes
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.policies import make_policies
from edpbrl_gym.language.rollouts import PLAYING, Rollout, roll_out
from edpbrl_gym.language.trainer import train
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import load_vocabulary

if TYPE_CHECKING:
    from edpbrl_gym.language.model import LanguageModel
    from edpbrl_gym.language.policy_set import Policies
    from edpbrl_gym.language.training_log import TrainingLog

__all__ = ["REINFORCE", "run_reinforce"]

ARMS = (("base", True), ("trained", False))  # name, whether all prompts come from the base model
# purposes of the random streams of the rollouts; set i of questions of the tastes uses _TASTES + i
_SIMILARITY, _MAP, _LIKELY, _TASTES = 0, 1, 2, 3


def run_reinforce(
    settings: ReinforceExperiment,
    out: str | os.PathLike[str],
    *,
    device: str | None = None,
    accelerator: Any = None,
    tensorboard: bool = False,
    callback: Callable[[TrainingLog], None] | None = None,
    say: Callable[[str], object] = lambda step: None,
) -> Results | None:
    """Run or resume the experiment and write results.parquet (figures and report: ``registry.write_report``).

    Args:
        settings: Settings of the experiment.
        out: A new or empty folder, or that of an earlier run with the same settings.
        device: Device of the language models; None is "cuda" if available.
        accelerator: ``accelerate.Accelerator`` of several processes; all train, the first one measures and writes.
        tensorboard: Write scalars of the training to OUT/training/tensorboard.
        callback: Called by the training after every iteration.
        say: Called before each stage: "training", "similarity", "map", "perplexity", "tastes".

    Returns:
        The results; None in all processes but the first. ``part`` of a row is "train", "evaluation", "base",
        "similarity", "map", "perplexity" or "taste".

    Raises:
        RunFolderError: If ``out`` holds something else or can't be written.
        FileNotFoundError: If the folder of the language model is missing.
        ValueError: If model, vocabulary and settings don't fit.
    """
    language = load_language_model(settings.model, device=device)
    inputs = _inputs(settings, language)
    if accelerator is not None and not accelerator.is_main_process:
        accelerator.wait_for_everyone()  # other processes write into the folder only after the first has opened it
        _train(settings, language, inputs, Path(out), accelerator, callback, tensorboard)
        return None
    reinforce = replace(
        REINFORCE,
        inputs=lambda settings: inputs,
        prepare=functools.partial(
            _prepare, language=language, accelerator=accelerator, callback=callback, tensorboard=tensorboard, say=say
        ),
    )
    return run_experiment(reinforce, settings, out, jobs=1)


@dataclass(frozen=True)
class Stage:
    """A measurement of the trained policies, in this process."""

    part: str


@dataclass(frozen=True, eq=False)
class _Prepared:
    """The trained policies.

    Attributes:
        policies: The policies and the base model.
        encoder: Encoder of the prompts.
        history: Log of the training.
        say: Called before each stage.
    """

    policies: Policies
    encoder: TextEncoder
    history: TrainingLog
    say: Callable[[str], object]


def _inputs(settings: ReinforceExperiment, language: LanguageModel) -> Inputs:
    encoder = load_encoder(settings.encoder, cache=False)  # generated prompts hardly ever recur, so they are not stored
    words = load_vocabulary(settings.vocabulary)
    if min(words.sizes) < settings.num_options:  # reported now, not after hours of training
        raise ValueError(
            f"Expected a vocabulary with at least K = {settings.num_options} tokens in each step, got {words.sizes}"
        )
    config = {
        "model_fingerprint": language.fingerprint,
        "encoder_fingerprint": encoder.fingerprint,
        "vocabulary_fingerprint": words.fingerprint,
    }
    return Inputs(encoder, words, config, {"encoder": encoder.name, **_about(language)})


def _prepare(
    run: Run,
    todo: list[Stage],
    language: LanguageModel,
    accelerator: Any,
    callback: Callable[[TrainingLog], None] | None,
    tensorboard: bool,
    say: Callable[[str], object],
) -> _Prepared:
    """Train the policies, or read those of a finished training."""
    if accelerator is not None:
        accelerator.wait_for_everyone()
    say("training")
    return _Prepared(
        *_train(run.settings, language, run.inputs, run.folder.path, accelerator, callback, tensorboard), say
    )


def _train(
    settings: ReinforceExperiment,
    language: LanguageModel,
    inputs: Inputs,
    folder: Path,
    accelerator: Any,
    callback: Callable[[TrainingLog], None] | None,
    tensorboard: bool,
) -> tuple[Policies, TextEncoder, TrainingLog]:
    assert inputs.encoder is not None
    options = {"rank": settings.rank} if settings.kind == "adapters" else {}
    policies = make_policies(
        language,
        settings.num_options,
        kind=settings.kind,
        noise=settings.noise,
        seed=settings.training.seed,
        **options,
    )
    history = train(
        policies,
        inputs.encoder,
        settings.training,
        folder=folder / "training",
        callback=callback,
        accelerator=accelerator,
        tensorboard=tensorboard,
    )
    return policies, inputs.encoder, history


def _run_unit(settings: ReinforceExperiment, unit: Stage, folder: Path, prepared: _Prepared) -> list[dict[str, Any]]:
    if unit.part == "training":
        return _training(prepared.history)
    prepared.say(unit.part)
    # a new memo, so that the batches of a stage are the same whether the run was resumed or not
    rows = _STAGES[unit.part](settings, prepared.policies, MemoEncoder(prepared.encoder))
    if unit.part == "tastes":
        _save_tastes(rows, folder, prepared.encoder)
    return rows


def _about(language: LanguageModel) -> dict[str, Any]:
    """Notes on the language model and the machine, on which rounding depends."""
    import torch

    parameters = sum(parameter.numel() for parameter in language.model.parameters())
    threads = torch.get_num_threads()
    return {"model": language.name, "parameters": parameters, "device": str(language.device), "torch_threads": threads}


def _save_tastes(rows: list[dict[str, Any]], folder: Path, encoder: TextEncoder) -> None:
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
            )


def _training(history: TrainingLog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "part": "train", "iteration": entry.iteration, "objective": entry.objective, "deviation": entry.deviation,
            "gradient_norm": entry.gradient_norm, "divergence": entry.divergence, "words": entry.words,
            "seconds": entry.seconds,
        }
        for entry in history.iterations
    ]  # fmt: skip
    evaluations = [("evaluation", entry) for entry in history.evaluations]
    evaluations += [("base", history.base)] if history.base is not None else []
    rows += [
        {
            "part": part, "iteration": entry.iteration, "objective": entry.mean, "standard_error": entry.standard_error,
            "values": list(entry.values),
        }
        for part, entry in evaluations
    ]  # fmt: skip
    return rows


def _play(
    settings: ReinforceExperiment,
    policies: Policies,
    encoder: TextEncoder,
    base: bool,
    purpose: int,
    prompts: int,
    *,
    meta_samples: int = 1,
) -> Rollout:
    return roll_out(
        policies,
        encoder,
        settings.training,
        meta_samples=meta_samples,
        purpose=PLAYING,
        iteration=purpose,
        base=base,
        episodes=prompts,
    )


def _similarity(settings: ReinforceExperiment, policies: Policies, encoder: TextEncoder) -> list[dict[str, Any]]:
    """The paper's between-policy similarity of complete prompts."""
    rows = []
    for arm, base in ARMS:
        rollout = _play(
            settings, policies, encoder, base, _SIMILARITY, settings.repeat_prompts, meta_samples=settings.repeats
        )
        complete = np.moveaxis(rollout.features[..., -1, :], 1, 2)  # (R, n, K, d) to (R, K, n, d)
        for repeat, value in enumerate(between_policy_similarity(complete)):
            rows.append({"part": "similarity", "arm": arm, "repeat": repeat, "similarity": float(value)})
    return rows


def _map(settings: ReinforceExperiment, policies: Policies, encoder: TextEncoder) -> list[dict[str, Any]]:
    """One t-SNE map of the prompts of base and trained policies; with the prompts as text."""
    rows: list[dict[str, Any]] = []
    embeddings = []
    for arm, base in ARMS:
        rollout = _play(settings, policies, encoder, base, _MAP, settings.map_prompts)
        embeddings.append(np.moveaxis(rollout.features[0, :, :, -1], 0, 1).reshape(-1, rollout.features.shape[-1]))
        for policy, texts in enumerate(rollout.texts):
            rows += [{"part": "map", "arm": arm, "policy": policy, "prompt": prefixes[-1]} for prefixes in texts]
    places = map_prompts(np.concatenate(embeddings), seed=settings.training.seed)
    for row, (x, y) in zip(rows, places, strict=True):
        row |= {"x": float(x), "y": float(y)}
    return rows


def _perplexity(settings: ReinforceExperiment, policies: Policies, encoder: TextEncoder) -> list[dict[str, Any]]:
    """Perplexity under the base model of the prompts of each policy, and of the base model's own."""
    rows = []
    for arm, base in ARMS:
        rollout = _play(settings, policies, encoder, base, _LIKELY, settings.likely_prompts)
        for policy, samples in enumerate(rollout.samples):
            with policies.base_model() as model:
                value = perplexity(model, samples, batch_size=settings.training.batch_size)
            rows.append({"part": "perplexity", "arm": arm, "policy": policy, "perplexity": value})
    return rows


def _tastes(settings: ReinforceExperiment, policies: Policies, encoder: TextEncoder) -> list[dict[str, Any]]:
    """Errors of the tastes learnt from each arm's questions, for several sets of questions."""
    evaluation = EvaluationPrompts.of(
        load_vocabulary(settings.vocabulary),
        encoder,
        prompts=settings.prompts,
        pairs=settings.pairs,
        seed=derive_seed(settings.training.seed, "judge"),
    )
    users = {name: encoder.encode([text])[0].astype(np.float64) for name, text in settings.users.items()}
    rows: list[dict[str, Any]] = []
    episodes = -(-max(settings.counts) // settings.training.words)  # of H questions each
    for number in range(settings.taste_seeds):
        questions = {
            arm: _questions(_play(settings, policies, encoder, base, _TASTES + number, episodes)) for arm, base in ARMS
        }
        questions["random"] = _random_questions(settings, encoder, number)
        errors = learn_tastes(
            questions,
            users=users,
            answerings=settings.answerings,
            counts=settings.counts,
            evaluation=evaluation,
            seed=derive_seed(settings.training.seed, "tastes", number),
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
    agent = make_agent(
        "random",
        env,
        num_options=settings.num_options,
        episodes=episodes,
        seed=derive_seed(settings.training.seed, "random questions", number),
    ).learn()
    questions = draw_questions(ENVIRONMENT, agent, episodes=episodes, env_arguments=arguments, distinct=False).questions
    rows = encoder.encode([text for _, _, texts in questions for text in texts])
    features = rows.reshape(len(questions), settings.num_options, -1)
    return Queries(features, np.array([row[0] for row in questions]), np.array([row[1] for row in questions]))


_STAGES: dict[str, Callable[[ReinforceExperiment, Policies, TextEncoder], list[dict[str, Any]]]] = {
    "similarity": _similarity,
    "map": _map,
    "perplexity": _perplexity,
    "tastes": _tastes,
}

REINFORCE = Experiment(
    kind="reinforce",
    command="edpbrl reproduce reinforce",
    settings=ReinforceExperiment,
    plan=lambda settings: [Stage(name) for name in ("training", *_STAGES)],
    run_unit=_run_unit,
    report=make_report,
)
