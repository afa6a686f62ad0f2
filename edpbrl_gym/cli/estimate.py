"""``edpbrl estimate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import bullet, output, quiet_libraries, shown
from edpbrl_gym.cli.design_file import (
    DESIGN,
    NamedVocabulary,
    Study,
    built_in_vocabulary,
    option_vocabulary,
    read_study,
    recognised_vocabulary,
)
from edpbrl_gym.cli.encoders import answers_encoder, select_encoder
from edpbrl_gym.cli.errors import UsageError, bad_arguments
from edpbrl_gym.cli.populations import check_encoder_of_population, check_population_file
from edpbrl_gym.cli.tastes import near_words, provenance_of, under_population

if TYPE_CHECKING:
    from edpbrl_gym.estimation.population import Population

__all__ = ["Estimate", "run"]


@dataclass(frozen=True)
class Estimate:
    """Estimate a taste from answered questions."""

    answers: tyro.conf.Positional[Path]
    """Comparisons (.parquet), or the questions file of `edpbrl design` with its choice column filled in (1..K; several
    numbers, best first, are a partial ranking; a column worst may stand beside it)."""
    prior: Literal["words", "embeddings", "ridge"] | Path = "words"
    """Prior belief about the taste: near words of the vocabulary, where their embeddings vary, none (ridge), or what
    other people answered: a population.safetensors of `edpbrl fit-population`."""
    regularization: float | None = None
    """Lambda of the ridge (None: 1, or 1 / --scale)."""
    scale: float | Literal["auto"] | None = None
    """Mean prior variance (1 / lambda) of ridge or embeddings, or auto: the value that fits the answers best (None:
    auto; for the ridge --regularization)."""
    vocabulary: str | None = None
    """Built-in vocabulary (images, interiors) or folder of token files whose embeddings make the prior (with a
    population, that of a person unlike all others; None: that of design.json beside the answers, else the built-in one
    of whose tokens the options are made)."""
    power: float | None = None
    """Power of the embeddings' covariance; 0 ignores them (None: 0.75 for words, 1 for embeddings)."""
    encoder: str | None = None
    """Text encoder of a questions file (None: that of design.json beside it, else minilm)."""
    diagnose: bool = False
    """Also print whether the assumptions of the theory's bound on the error hold for these answers."""
    out: Path = Path("runs/theta.safetensors")
    """File for theta."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need; that of an encoder named in a file is asked for later."""
        from edpbrl_gym.features import encoder_needs

        return [] if self.encoder is None else encoder_needs(self.encoder)


def run(options: Estimate) -> None:
    """Estimate theta from a file of answers and write it."""
    from edpbrl_gym._places import hold_place, prepare_place
    from edpbrl_gym._validation import check_path
    from edpbrl_gym.estimation.population import Population
    from edpbrl_gym.personalize.taste import save_taste

    with bad_arguments():
        check_path(options.vocabulary, "vocabulary")
        _check(options)
    prepare_place(options.out)
    lock = hold_place(options.out)
    quiet_libraries()
    population = Population.load(options.prior) if isinstance(options.prior, Path) else None
    study = read_study(options.answers)
    words = None if options.prior == "ridge" else _vocabulary(options, study)
    comparisons, unanswered, encoder = _read(options, study, population)
    if words is None and options.prior != "ridge":
        texts = comparisons.texts
        words = built_in_vocabulary(texts, options.answers) if population is None else recognised_vocabulary(texts)
    metadata = comparisons.metadata
    if population is None:
        estimate, prior, facts = _estimate(options, comparisons, None if words is None else words.vocabulary, encoder)
    else:
        check_encoder_of_population(population, metadata, comparisons.dimension, Path(str(options.prior)))
        population, words = _falling_back(options, comparisons, population, words, encoder)
        estimate, prior, facts = _by_population(comparisons, population)
        facts |= {} if words is None else {"vocabulary_fingerprint": words.vocabulary.fingerprint}
    path = save_taste(options.out, estimate.theta, provenance_of(comparisons, options.answers, estimate, facts))
    console = output()
    given = f"{len(comparisons)} questions with {comparisons.num_options} options"
    bullet(console, "Answers", f"{given}, {unanswered} without an answer left out")
    if words is not None:
        bullet(console, "Vocabulary", words.name)
    if population is not None:
        bullet(console, "Population", _belonging(population, facts))
        if words is None:
            bullet(console, "Fallback", "the population's base prior; --vocabulary and --encoder add the words'")
    _tell_estimate(estimate, prior, comparisons, diagnose=options.diagnose)
    bullet(console, "Written", shown(path))
    del lock


def _tell_estimate(estimate: Any, prior: str, comparisons: Any, *, diagnose: bool) -> None:
    """Print how the estimate was found, and how well it reproduces the answers."""
    import numpy as np

    from edpbrl_gym.estimation.metrics import choice_accuracy

    console = output()
    state = "converged" if estimate.converged else "NOT converged: raise --regularization"
    norm = float(np.linalg.norm(estimate.theta))
    bullet(console, "Estimate", f"{prior}, {state} after {estimate.iterations} Newton steps, |theta| = {norm:.3f}")
    fit, guess = choice_accuracy(comparisons, estimate.theta), 1 / comparisons.num_options
    bullet(console, "Fit", f"reproduces {fit:.1%} of these answers ({guess:.1%} by guessing)")
    if diagnose:
        diagnosis = estimate.diagnose().summary() if estimate.converged else "none, as the estimate did not converge"
        for number, line in enumerate(diagnosis.splitlines()):
            bullet(console, "" if number else "Diagnosis", line)


def _check(options: Estimate) -> None:
    """Refuse values out of range, and options that the prior doesn't have and would ignore."""
    from edpbrl_gym._validation import check_number
    from edpbrl_gym.features import check_encoder_spec

    if isinstance(options.prior, Path):
        _check_population(options, options.prior)
    if options.regularization is not None:
        check_number(options.regularization, "--regularization (lambda)", minimum=0.0)
        if options.prior != "ridge":
            raise UsageError(f"Expected --prior ridge with --regularization, which {options.prior} doesn't have")
        if options.scale is not None:
            raise UsageError("Expected --scale or --regularization (1 / scale), got both; leave one out")
    if options.power is not None:
        check_number(options.power, "--power", minimum=0.0)
        if options.prior == "ridge":
            raise UsageError("Expected --prior words or embeddings with --power, which the ridge doesn't have")
    if options.scale not in (None, "auto"):
        check_number(options.scale, "--scale", minimum=0.0, exclusive=True)
        if options.prior == "words":
            raise UsageError(
                "Expected --prior embeddings or ridge with a --scale, as words takes it from the answers; leave it out"
            )
    if options.vocabulary is not None and options.prior == "ridge":
        raise UsageError("Expected --prior words or embeddings with --vocabulary, which the ridge doesn't need")
    if options.encoder is not None:
        check_encoder_spec(options.encoder)
    if not options.answers.is_file():
        raise UsageError(f"Expected a file of answers at {options.answers}, found none; check the path")


def _check_population(options: Estimate, place: Path) -> None:
    check_population_file(place, others="'words', 'embeddings', 'ridge' or ")
    for name in ("regularization", "scale", "power"):
        if getattr(options, name) is not None:
            raise UsageError(f"Expected no --{name} with a population, which decides that itself; leave it out")


# -- prior -----------------------------------------------------------------------------------------------------------


def _estimate(options: Estimate, comparisons: Any, vocabulary: Any, encoder: Any) -> tuple[Any, str, dict[str, Any]]:
    """The estimate, its prior in words, and the facts about the prior for the taste file."""
    from edpbrl_gym.estimation import GaussianPrior, estimate, fit_prior
    from edpbrl_gym.likelihood import BestOf, response_model_of

    model = response_model_of(comparisons.responses)
    answers = comparisons if model == BestOf() else comparisons.terms(model)
    if options.prior == "ridge" and options.scale is None:
        value = 1.0 if options.regularization is None else options.regularization
        ridge = estimate(answers, regularization=value)
        return ridge, f"lambda = {value:g}", {"prior": "ridge", "regularization": value}
    facts: dict[str, Any] = {"prior": options.prior}
    if options.prior == "ridge":
        base, words = GaussianPrior.isotropic(comparisons.dimension, 1.0), "ridge"
    else:
        tokens = _tokens(options, comparisons, vocabulary, encoder)
        facts["vocabulary_fingerprint"] = vocabulary.fingerprint
        if options.prior == "words":
            return _near_words(options, answers, tokens, facts)
        facts["power"] = 1.0 if options.power is None else options.power
        base = GaussianPrior.from_embeddings(tokens, power=facts["power"], centred=False)
        words = f"embeddings to the power {facts['power']:g}"
    if options.scale in (None, "auto"):
        fit = fit_prior(answers, base=base)
        facts |= {"scale": fit.scale, "scale_from": "answers", "log_evidence": fit.log_evidence}
        return fit.estimate, f"{words}, scale {fit.scale:.3g} from the answers", facts
    scale = float(options.scale)
    facts |= {"scale": scale, "scale_from": "given"}
    return estimate(answers, prior=base.scaled(scale)), f"{words}, scale {scale:g}", facts


def _near_words(options: Estimate, answers: Any, tokens: Any, facts: dict[str, Any]) -> tuple[Any, str, dict[str, Any]]:
    """The estimate under the library's default prior, around words that the person seems to like."""
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior

    prior = VocabularyPrior(tokens) if options.power is None else VocabularyPrior(tokens, power=options.power)
    found, near, more = near_words(answers, prior)
    facts |= more | ({} if options.power is None else {"power": options.power})
    return found, f"words of the vocabulary (weight of the nearest {near:.0%})", facts


def _tokens(options: Estimate, comparisons: Any, vocabulary: Any, encoder: Any) -> Any:
    """The embeddings of the vocabulary's tokens by the encoder of the answers."""
    if encoder is None:
        advice = ", or --prior ridge, which needs none"
        encoder = answers_encoder(options.encoder, comparisons, options.answers, advice=advice)
    return encoder.encode(vocabulary.all_tokens, progress=True)


def _falling_back(
    options: Estimate, comparisons: Any, population: Population, words: NamedVocabulary | None, encoder: Any
) -> tuple[Population, NamedVocabulary | None]:
    """The population with the words' prior for a person unlike all others; None where words or encoder are unknown."""
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.features.loading import is_own_encoder

    name = comparisons.metadata.get("encoder")
    asked = options.encoder is not None or options.vocabulary is not None
    if words is None or not (asked or encoder is not None or (name is not None and not is_own_encoder(name))):
        return population, None
    return population.with_fallback(VocabularyPrior(_tokens(options, comparisons, words.vocabulary, encoder))), words


def _by_population(comparisons: Any, population: Population) -> tuple[Any, str, dict[str, Any]]:
    """The estimate under a population."""
    from edpbrl_gym.likelihood import response_model_of

    found, facts = under_population(comparisons.terms(response_model_of(comparisons.responses)), population)
    return found, f"population of {population.people} people", facts


def _belonging(population: Population, facts: dict[str, Any]) -> str:
    """To which part of the population the person belongs, in words."""
    parts = facts["memberships"]
    if len(parts) == 1:
        known = [f"{parts[0]:.0%} like its people"]
    else:
        known = [f"{share:.0%} type {number}" for number, share in enumerate(parts, start=1)]
    return f"{', '.join(known)}, {facts['weight_of_the_fallback']:.0%} unlike all of them ({population.kind})"


# -- answers ---------------------------------------------------------------------------------------------------------


def _read(options: Estimate, study: Study | None, population: Population | None) -> tuple[Any, int, Any]:
    """The answered questions, the number of unanswered ones, and the encoder of a questions file."""
    from edpbrl_gym.comparisons.answer_files import read_person
    from edpbrl_gym.features import TextEncoder, load_encoder

    loaded: list[TextEncoder] = []

    def encoder() -> TextEncoder:
        known = "minilm" if population is None else population.provenance.get("encoder", "minilm")
        place = options.answers.parent / DESIGN if population is None else Path(str(options.prior))
        name, file = (known, place) if study is None else (study.encoder, study.file)
        loaded.append(load_encoder(select_encoder(options.encoder, name, file)))
        return loaded[0]

    comparisons, unanswered = read_person(options.answers, encoder, progress=True)
    name = comparisons.metadata.get("encoder")
    if not loaded and options.encoder is not None and name is not None and options.encoder != name:
        raise UsageError(
            f"Expected no --encoder or {name!r}, with which {options.answers} was made, got {options.encoder!r}"
        )
    return comparisons, unanswered, loaded[0] if loaded else None


def _vocabulary(options: Estimate, study: Study | None) -> NamedVocabulary | None:
    """The vocabulary of the prior: --vocabulary or that of the design; None without both."""
    if options.vocabulary is not None:
        return option_vocabulary(options.vocabulary)
    return None if study is None else study.vocabulary()
