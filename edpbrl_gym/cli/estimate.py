"""``edpbrl estimate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edpbrl_gym.cli.console import bullet, output, quiet_libraries, shown
from edpbrl_gym.cli.errors import UsageError, bad_arguments
from edpbrl_gym.cli.options import Estimate

__all__ = ["run"]


def run(options: Estimate) -> None:
    """Estimate theta from a file of answers and write it."""
    import numpy as np

    from edpbrl_gym._validation import check_number
    from edpbrl_gym.experiments.metrics import choice_accuracy
    from edpbrl_gym.experiments.taste import save_taste

    with bad_arguments():
        check_number(options.regularization, "--regularization (lambda)", minimum=0.0)
        check_number(options.power, "--power", minimum=0.0)
        if options.scale not in (None, "auto"):
            check_number(options.scale, "--scale", minimum=0.0, exclusive=True)
        if not options.answers.is_file():
            raise UsageError(f"Expected a file of answers at {options.answers}, found none; check the path")
    quiet_libraries()
    comparisons, left_out = _read(options)
    found, prior, facts = _estimate(options, comparisons)
    known = comparisons.metadata
    provenance: dict[str, Any] = {key: known[key] for key in ("encoder", "encoder_fingerprint") if key in known}
    provenance |= {
        "answers": options.answers.name,
        "who": comparisons.who,
        "questions": len(comparisons),
        **facts,
        "converged": bool(found.converged),
        "iterations": int(found.iterations),
        "gradient_norm": float(found.gradient_norm),
        "log_likelihood": float(found.log_likelihood),
    }
    path = save_taste(options.out, found.theta, provenance)
    console = output()
    options_per_question = comparisons.num_options
    bullet(
        console,
        "Answers",
        f"{len(comparisons)} questions with {options_per_question} options, {left_out} without an answer left out",
    )
    state = "converged" if found.converged else "NOT converged: raise --regularization"
    norm = float(np.linalg.norm(found.theta))
    steps = f"{state} after {found.iterations} Newton steps"
    bullet(console, "Estimate", f"{prior}, {steps}, |theta| = {norm:.3f}")
    fit = choice_accuracy(comparisons, found.theta)
    bullet(console, "Fit", f"reproduces {fit:.1%} of these answers ({1 / options_per_question:.1%} by guessing)")
    bullet(console, "Written", shown(path))


def _estimate(options: Estimate, comparisons: Any) -> tuple[Any, str, dict[str, Any]]:
    """The estimate, its prior in words, and what the taste file says about the prior."""
    from edpbrl_gym.estimation import GaussianPrior, estimate_comparisons, fit_prior

    if options.prior == "ridge" and options.scale is None:
        found = estimate_comparisons(comparisons, regularization=options.regularization)
        return found, f"lambda = {options.regularization:g}", {"regularization": options.regularization}
    facts: dict[str, Any] = {"prior": options.prior}
    if options.prior == "ridge":
        base, words = GaussianPrior.isotropic(comparisons.dimension, 1.0), "ridge"
    else:
        base, words = _embedding_prior(options, comparisons), f"embeddings to the power {options.power:g}"
        facts["power"] = options.power
    if options.scale in (None, "auto"):
        fit = fit_prior(comparisons.features, comparisons.choice, base=base)
        facts |= {"scale": fit.scale, "scale_from": "answers", "log_evidence": fit.log_evidence}
        return fit.estimate, f"{words}, scale {fit.scale:.3g} from the answers", facts
    scale = float(options.scale)
    facts |= {"scale": scale, "scale_from": "given"}
    return estimate_comparisons(comparisons, prior=base.scaled(scale)), f"{words}, scale {scale:g}", facts


def _embedding_prior(options: Estimate, comparisons: Any) -> Any:
    """The prior from the vocabulary's embeddings by the encoder of the answers."""
    from edpbrl_gym.estimation import GaussianPrior
    from edpbrl_gym.features import load_encoder
    from edpbrl_gym.vocabulary import load_vocabulary

    name = options.encoder or comparisons.metadata.get("encoder")
    if name is None:
        raise UsageError(f"Expected --encoder, as {options.answers} doesn't say with which one it was made")
    vocabulary, encoder = load_vocabulary(options.vocabulary), load_encoder(name)
    wanted = comparisons.metadata.get("encoder_fingerprint")
    if encoder.dimension != comparisons.dimension or (wanted is not None and encoder.fingerprint != wanted):
        raise ValueError(
            f"Expected the encoder of the answers ({name}, {comparisons.dimension} features, sha256 "
            f"{str(wanted)[:16]}), got {encoder.name} ({encoder.dimension} features, sha256 "
            f"{encoder.fingerprint[:16]}); load the same weights"
        )
    features = encoder.encode(vocabulary.all_tokens, progress=True)
    return GaussianPrior.from_embeddings(features, power=options.power, centred=False)


def _read(options: Estimate) -> tuple[Any, int]:
    from edpbrl_gym.comparisons import Comparisons

    if options.answers.suffix == ".parquet" and not _is_questions(options.answers):
        comparisons = Comparisons.from_parquet(options.answers)
        stored = comparisons.metadata.get("encoder")
        if options.encoder is not None and options.encoder != stored:
            raise UsageError(
                f"Expected no --encoder or {stored!r}, with which {options.answers} was made, got {options.encoder!r}"
            )
        return comparisons, 0
    from edpbrl_gym.experiments.questions import read_answers
    from edpbrl_gym.features import load_encoder

    encoder = load_encoder(options.encoder or _encoder_beside(options.answers))
    return read_answers(options.answers, encoder, progress=True)


def _is_questions(path: Path) -> bool:
    import pyarrow
    import pyarrow.parquet

    try:
        return "option_1" in pyarrow.parquet.read_schema(path).names
    except (pyarrow.ArrowException, OSError):
        return False  # Comparisons.from_parquet says what is wrong with it


def _encoder_beside(answers: Path) -> str:
    """The encoder of the design that the questions came from, else the default."""
    file = answers.parent / "design.json"
    if not file.is_file():
        return "minilm"
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["settings"]["encoder"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"Expected the settings of a design in {file}, could not read them; give --encoder") from None
