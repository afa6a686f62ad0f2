"""The paper's experiment with synthetic ground truth models, ``edpbrl reproduce synthetic``.

Users whose taste theta* is the embedding of a sentence answer the questions of each agent; theta is estimated after T
episodes and compared with theta*. The questions of a run don't depend on the answers, so they are encoded once and
answered by every user in every mode.
"""

from __future__ import annotations

import os

import numpy as np

from edpbrl_gym._seeds import generator
from edpbrl_gym.agents.registry import check_agent
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.experiments.designs import Tokens, design_episodes, has_design, solve_and_save
from edpbrl_gym.experiments.processes import Track, in_parallel, no_track, workers
from edpbrl_gym.experiments.runs import Results, RunFolder, read_results
from edpbrl_gym.experiments.settings import SyntheticSettings
from edpbrl_gym.experiments.synthetic_run import Evaluation, RunTask, part_name, perform
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

__all__ = ["run_synthetic"]


def run_synthetic(
    settings: SyntheticSettings,
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    track: Track = no_track,
    progress: bool = False,
) -> Results:
    """Run the experiment, or the rest of it, and write results.parquet (figures and report: ``report.write_report``).

    Args:
        settings: What decides the numbers.
        out: The run folder, new or of an earlier run with the same settings (it goes on where that one stopped).
        jobs: Processes; None: one for each core, and no more than there are runs. The results don't depend on it.
        track: Shows progress over designs and runs.
        progress: Show progress bars while texts are encoded.

    Returns:
        The results as stored.

    Raises:
        RunFolderError: If ``out`` holds another experiment or can't be written.
        ValueError: If an agent is unknown or the vocabulary can't be used.
    """
    for agent in settings.parsed_agents:
        check_agent(agent.name)  # a mistyped name should not cost minutes
    train, test = _split(settings)
    encoder = load_encoder(settings.encoder)
    config = settings.as_config() | {
        "encoder_fingerprint": encoder.fingerprint,
        "vocabulary_fingerprint": load_vocabulary(settings.vocabulary).fingerprint,
    }
    folder = RunFolder.open(out, kind="synthetic", config=config)
    folder.begin()
    folder.note(
        encoder=encoder.name, train_sizes=list(train.sizes), test_sizes=list(test.sizes), steps=list(train.names)
    )
    names = [part_name(run) for run in range(settings.runs)]
    todo = [run for run in range(settings.runs) if not folder.has_part(part_name(run))]
    if todo or not folder.provenance.get("designs_solved"):
        processes = workers(jobs)
        texts = list(dict.fromkeys(train.all_tokens))
        tokens = Tokens(encoder.fingerprint, texts, encoder.encode(texts, progress=progress))
        evaluation = _evaluation(settings, test, encoder, folder, progress)
        _solve_designs(settings, folder, tokens, processes, track)
        tasks = [RunTask(settings, run, folder.path, tokens, evaluation) for run in todo]
        for _ in track("runs", in_parallel(perform, [(task,) for task in tasks], processes), len(tasks)):
            pass
    table = folder.read_parts(names)
    folder.finish()
    return read_results(folder.write_results(table))


def _split(settings: SyntheticSettings) -> tuple[Vocabulary, Vocabulary]:
    train, test = load_vocabulary(settings.vocabulary).split(settings.seed)
    if settings.tokens_per_step is not None:
        train = train.subset(settings.tokens_per_step, 0)
    return train, test


def _evaluation(
    settings: SyntheticSettings, test: Vocabulary, encoder: TextEncoder, folder: RunFolder, progress: bool
) -> Evaluation:
    """Embed the users' sentences and the held-out prompts; the same for all runs."""
    rng = generator(settings.seed, "evaluation")
    sample = sample_pairs(test.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    texts = [test.prompt(tokens) for tokens in sample.tokens]
    sentences = encoder.encode(list(settings.users.values())).astype(np.float64)
    sentences /= np.linalg.norm(sentences, axis=1, keepdims=True)
    features = encoder.encode(texts, progress=progress)
    folder.note(prompts=len(sample.tokens), pairs=len(sample.pairs))
    return Evaluation(dict(zip(settings.users, sentences, strict=True)), features, sample.pairs)


def _solve_designs(
    settings: SyntheticSettings, folder: RunFolder, tokens: Tokens, processes: int, track: Track
) -> None:
    work = [
        (settings, position, planned, folder.path, tokens)
        for position, agent in enumerate(settings.parsed_agents)
        if has_design(agent)
        for planned, _ in design_episodes(settings, agent)
    ]
    solved = list(track("designs", in_parallel(solve_and_save, work, processes), len(work))) if work else []
    solved.sort(key=lambda design: (design["agent"], design["episodes"]))
    folder.note(designs=solved, designs_solved=True)
