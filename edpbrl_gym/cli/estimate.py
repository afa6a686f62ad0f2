"""``edpbrl estimate``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.answers import (
    answers_encoder,
    check_encoder_of_population,
    check_population_file,
    select_encoder,
)
from edpbrl_gym.cli.arguments import Drawing
from edpbrl_gym.cli.console import UsageError, bad_arguments, bullet, output, quiet_libraries, shown
from edpbrl_gym.cli.design_file import (
    DESIGN,
    NamedVocabulary,
    Study,
    option_vocabulary,
    read_study,
    recognised_vocabulary,
    words_of_answers,
)

if TYPE_CHECKING:
    from edpbrl_gym.estimation.taste_prior import TastePrior

__all__ = ["Estimate", "run"]

_OPTIONS = ("regularization", "scale", "power")  # of priors


@dataclass(frozen=True)
class Estimate:
    """Estimate a taste from answered questions."""

    answers: tyro.conf.Positional[Path]
    """Comparisons (.parquet); a table of questions as `edpbrl design` writes it (.csv, .tsv, .parquet) with its choice
    column filled in (1..K; several numbers, best first, are a partial ranking; a column worst may stand beside it); or
    a long table with a row for each option (question, option, chosen and attributes); or prompts with pictures and a
    ranking or labels of them (.json, .jsonl, .parquet, .csv), as ImageReward, HPD and Pick-a-Pic have them."""
    person: str | None = None
    """Person of a long table with several (None: there is one)."""
    prior: str = "words"
    """Prior belief about the taste: near words of the vocabulary, where their embeddings vary (embeddings), none
    (ridge), what other people answered (a population.safetensors of `edpbrl fit-population`), or another name of
    docs/priors.md, such as gp. Attributes of a long table have no words: their prior is none, whatever their units."""
    regularization: float | None = None
    """Lambda of the ridge (None: 1, or 1 / --scale)."""
    scale: float | Literal["auto"] | None = None
    """Mean prior variance (1 / lambda) of ridge or embeddings, or auto: the value that fits the answers best (None:
    auto; for the ridge --regularization)."""
    vocabulary: str | None = None
    """Vocabulary (images, interiors, posters, styles) or folder of token files whose embeddings make the prior (with a
    population, that of a person unlike all others; None: that of design.json beside the answers, else the built-in one
    of whose tokens the options are made, else the phrases of the options)."""
    power: float | None = None
    """Power of the embeddings' covariance; 0 ignores them (None: 0.75 for words, 1 for embeddings)."""
    encoder: str | None = None
    """Text encoder of a questions file (None: that of design.json beside it, else minilm)."""
    features: Literal["text", "picture", "both"] = "text"
    """What the taste is about, of answers about prompts whose pictures --renderer draws: the texts, the pictures, or
    both, each by as much as the answers say."""
    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    image_seed: int = 0
    """Seed of the pictures."""
    image_encoder: str | None = None
    """Encoder of the pictures that answers are about (None: efficientnet-lite0, with --features joined by colours)."""
    pictures: Path | None = None
    """Folder to which the paths of pictures are relative (None: that of the answers)."""
    out: Path = Path("runs/theta.safetensors")
    """File for theta."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need; that of an encoder named in a file is asked for later."""
        from edpbrl_gym.estimation.priors import prior_needs
        from edpbrl_gym.features import encoder_needs
        from edpbrl_gym.features.images import PICTURE_FEATURES, image_encoder_needs

        needs = [*([] if self.encoder is None else encoder_needs(self.encoder)), *prior_needs(self.prior)]
        seen = self.image_encoder or ("" if self.features == "text" else PICTURE_FEATURES)
        needs += [need for name in seen.split("+") if name for need in image_encoder_needs(name)]
        return [*needs, *([] if self.features == "text" else self.drawing.needs())]


def run(options: Estimate) -> None:
    """Estimate theta from a file of answers and write it."""
    from edpbrl_gym._places import hold_place, prepare_place
    from edpbrl_gym._validation import check_path
    from edpbrl_gym.estimation.priors import PRIORS, load_prior
    from edpbrl_gym.features.loading import picture_parts
    from edpbrl_gym.likelihood import format_of
    from edpbrl_gym.personalize.taste import provenance_of, save_taste

    with bad_arguments():
        check_path(options.vocabulary, "vocabulary")
        _check(options)
    prepare_place(options.out)
    with hold_place(options.out):
        quiet_libraries()
        entry = PRIORS.get(options.prior)
        learnt = load_prior(options.prior) if entry is None else None
        uses_words = entry is None or entry.uses_features
        study = read_study(options.answers)
        words = None
        if uses_words and options.vocabulary is not None:
            words = option_vocabulary(options.vocabulary)
        elif uses_words and study is not None:
            words = study.vocabulary()
        comparisons, unanswered, encoder = _read(options, study, learnt)
        if options.features != "text":
            comparisons = _seen(options, comparisons, encoder)
        metadata = comparisons.metadata
        named = "attributes" in metadata
        if named:
            _check_attributes(options)
        pictured = bool(picture_parts(str(metadata.get("encoder"))))
        if pictured and options.features == "text" and (options.vocabulary, options.encoder) != (None, None):
            raise UsageError("Expected no --vocabulary and no --encoder with answers about pictures; leave them out")
        if named or pictured:
            words = study = None
        if words is None and uses_words and not (named or pictured):
            texts = comparisons.texts
            words = words_of_answers(texts, options.answers) if learnt is None else recognised_vocabulary(texts)
        if learnt is not None:
            check_encoder_of_population(learnt, metadata, comparisons.dimension, Path(options.prior))
            prior, words = _falling_back(options, comparisons, learnt, words, encoder)
        else:
            prior = _prior(options, comparisons, None if words is None else words.vocabulary, encoder)
        known = None if pictured else words or _known_vocabulary(study, comparisons)
        mapped = prior.mapped(comparisons)
        fit = prior.fit(mapped.terms(format_of(comparisons.responses)))
        title, facts, belonging = prior.described(fit)
        for name in ("regularization", "power"):
            if getattr(options, name) is not None:
                facts.setdefault(name, getattr(options, name))
        origin = provenance_of(comparisons, options.answers, fit.estimate, facts)
        vocabulary = None if known is None else known.vocabulary
        path = save_taste(options.out, fit.estimate.theta, origin, vocabulary=vocabulary, landmarks=prior.landmarks)
        console = output()
        few, many = int(comparisons.sizes.min()), comparisons.num_options
        given = f"{len(comparisons)} questions with {many if few == many else f'{few} to {many}'} options"
        bullet(console, "Answers", f"{given}, {unanswered} without an answer left out")
        if words is not None:
            bullet(console, "Vocabulary", words.name)
        if belonging:
            bullet(console, prior.label.capitalize(), belonging)
        if learnt is not None and words is None and not (named or pictured):
            bullet(console, "Fallback", "the population's base prior; --vocabulary and --encoder add the words'")
        _tell_estimate(fit.estimate, title, mapped)
        bullet(console, "Written", shown(path))


def _tell_estimate(estimate: Any, prior: str, comparisons: Any) -> None:
    """Print how the estimate was found, and how well it reproduces the answers."""
    import numpy as np

    from edpbrl_gym.estimation.metrics import choice_accuracy

    console = output()
    state = "converged" if estimate.converged else "NOT converged: raise --regularization"
    norm = float(np.linalg.norm(estimate.theta))
    bullet(console, "Estimate", f"{prior}, {state} after {estimate.iterations} Newton steps, |theta| = {norm:.3f}")
    if "attributes" in comparisons.metadata:
        pairs = zip(comparisons.attributes, estimate.theta.tolist(), strict=True)
        bullet(console, "Theta", ", ".join(f"{name} {value:.4g}" for name, value in pairs))
    chosen = comparisons.decided
    if len(chosen):  # others rate
        fit, guess = choice_accuracy(chosen, estimate.theta), float((1 / chosen.sizes).mean())
        bullet(console, "Fit", f"reproduces {fit:.1%} of these answers ({guess:.1%} by guessing)")


def _check(options: Estimate) -> None:
    """Refuse values out of range, and options that the prior doesn't have and would ignore."""
    from edpbrl_gym._validation import check_number
    from edpbrl_gym.estimation.priors import PRIORS, prior_options
    from edpbrl_gym.features import check_encoder_spec
    from edpbrl_gym.features.images import check_image_encoder_spec

    if (options.features == "text") != (options.drawing.renderer is None):
        raise UsageError(
            "Expected --renderer, which draws the pictures of the answers, with --features picture or both, and none "
            f"with text; got --features {options.features}"
        )
    if options.features != "text" and options.vocabulary is not None:
        raise UsageError("Expected no --vocabulary with --features picture or both: no picture is drawn of a token")
    entry = PRIORS.get(options.prior)
    if entry is None:
        check_population_file(Path(options.prior), others=f"{', '.join(map(repr, PRIORS))} or ")
    if options.regularization is not None:
        check_number(options.regularization, "--regularization (lambda)", minimum=0.0)
        if options.scale is not None:
            raise UsageError("Expected --scale or --regularization (1 / scale), got both; leave one out")
    if options.power is not None:
        check_number(options.power, "--power", minimum=0.0)
    if options.scale not in (None, "auto"):
        check_number(options.scale, "--scale", minimum=0.0, exclusive=True)
    for name in _OPTIONS:
        if getattr(options, name) in (None, "auto"):
            continue
        if entry is None:
            raise UsageError(f"Expected no --{name} with a population, which decides that itself; leave it out")
        if name not in prior_options(options.prior):
            have = " or ".join(one for one in PRIORS if name in prior_options(one))
            raise UsageError(f"Expected --prior {have} with --{name}, which {options.prior} doesn't have")
    if options.vocabulary is not None and entry is not None and not entry.uses_features:
        have = " or ".join(name for name, one in PRIORS.items() if one.uses_features)
        raise UsageError(f"Expected --prior {have} with --vocabulary, which {options.prior} doesn't need")
    if options.encoder is not None:
        check_encoder_spec(options.encoder)
    if options.image_encoder is not None:
        for name in options.image_encoder.split("+") if options.features != "text" else (options.image_encoder,):
            check_image_encoder_spec(name)
    if not options.answers.is_file():
        raise UsageError(f"Expected a file of answers at {options.answers}, found none; check the path")


def _check_attributes(options: Estimate) -> None:
    """Refuse options about texts with a table of attributes."""
    from edpbrl_gym.estimation.priors import PRIORS

    for name in ("vocabulary", "encoder", "power"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"Expected no --{name} with the attributes of a long table, which are no texts; leave it out"
            )
    entry = PRIORS.get(options.prior)
    if entry is not None and entry.needs_words and options.prior != Estimate.prior:
        others = " or ".join([*(name for name, one in PRIORS.items() if not one.needs_words), "a population"])
        raise UsageError(f"Expected --prior {others} with the attributes of a long table, got {options.prior}")


# -- prior -----------------------------------------------------------------------------------------------------------


def _prior(options: Estimate, comparisons: Any, vocabulary: Any, encoder: Any) -> TastePrior:
    """The prior of a name; of attributes, which are no words, that of their spread."""
    from edpbrl_gym.estimation.other_texts import other_texts
    from edpbrl_gym.estimation.priors import PRIORS, default_prior, make_prior, prior_options
    from edpbrl_gym.estimation.scaled_prior import attributes_prior
    from edpbrl_gym.features import embed_tokens

    name, blocks = options.prior, tuple(comparisons.metadata.get("blocks", ()))
    if name == Estimate.prior:
        name = default_prior(blocks)
    entry = PRIORS[name]
    if "attributes" in comparisons.metadata and entry.needs_words:
        return attributes_prior([comparisons])
    wanted = [option for option in prior_options(name) if getattr(options, option, None) is not None]
    rows, others = comparisons.features[comparisons.present], None
    if vocabulary is not None and not entry.of_options:
        encoder = _encoder(options, comparisons, encoder)
        rows, others = embed_tokens(vocabulary, encoder, progress=True), other_texts(vocabulary, encoder)
    return make_prior(
        name, rows, blocks=blocks, others=others, **{option: getattr(options, option) for option in wanted}
    )


def _encoder(options: Estimate, comparisons: Any, encoder: Any) -> Any:
    """The encoder that is known, or that of the answers."""
    advice = ", or --prior ridge, which needs none"
    return encoder or answers_encoder(options.encoder, comparisons, options.answers, advice=advice)


def _falling_back(
    options: Estimate, comparisons: Any, population: TastePrior, words: NamedVocabulary | None, encoder: Any
) -> tuple[TastePrior, NamedVocabulary | None]:
    """The population with the words' prior for a person unlike all others; None where words or encoder are unknown."""
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.features import embed_tokens
    from edpbrl_gym.features.loading import is_own_encoder

    name = comparisons.metadata.get("encoder")
    asked = options.encoder is not None or options.vocabulary is not None
    if words is None or not (asked or encoder is not None or (name is not None and not is_own_encoder(name))):
        return population, None
    tokens = embed_tokens(words.vocabulary, _encoder(options, comparisons, encoder), progress=True)
    return population.with_words(lambda: VocabularyPrior(tokens)), words


# -- answers ---------------------------------------------------------------------------------------------------------


def _read(options: Estimate, study: Study | None, population: TastePrior | None) -> tuple[Any, int, Any]:
    """The answered questions, the number of unanswered ones, and the encoder of a questions file."""
    from edpbrl_gym.comparisons.answer_files import form_of, read_person
    from edpbrl_gym.comparisons.picture_answers import IMAGE_ENCODER, PictureSource
    from edpbrl_gym.features import TextEncoder, load_encoder

    pictures = PictureSource(options.image_encoder or IMAGE_ENCODER, options.pictures)
    if (options.pictures or (options.image_encoder and options.features == "text")) and form_of(
        options.answers
    ) != "pictures":
        raise UsageError(f"Expected answers about pictures with --image-encoder and --pictures, got {options.answers}")

    loaded: list[TextEncoder] = []

    def encoder() -> TextEncoder:
        known = "minilm" if population is None else population.provenance.get("encoder", "minilm")
        source = options.answers.parent / DESIGN if population is None else Path(options.prior)
        name, file = (known, source) if study is None else (study.encoder, study.file)
        loaded.append(load_encoder(select_encoder(options.encoder, name, file)))
        return loaded[0]

    comparisons, unanswered = read_person(
        options.answers, encoder, person=options.person, pictures=pictures, progress=True
    )
    name = comparisons.metadata.get("encoder")
    if not loaded and options.encoder is not None and name is not None and options.encoder != name:
        raise UsageError(
            f"Expected no --encoder or {name!r}, with which {options.answers} was made, got {options.encoder!r}"
        )
    return comparisons, unanswered, loaded[0] if loaded else None


def _seen(options: Estimate, comparisons: Any, encoder: Any) -> Any:
    """The answers by what their options look like, or by that and their texts."""
    from edpbrl_gym.features.images import PICTURE_FEATURES
    from edpbrl_gym.pictures.drawn import drawn_by, features_of, seen_answers

    if options.features == "both" and encoder is None:
        advice = ", or --features picture, which needs none"
        encoder = answers_encoder(options.encoder, comparisons, options.answers, advice=advice)
    with bad_arguments():
        renderer = options.drawing.load()
        drawn = drawn_by(renderer, options.image_encoder or PICTURE_FEATURES, seed=options.image_seed)
    with renderer:
        return seen_answers(comparisons, features_of(options.features, encoder, drawn), progress=True)


def _known_vocabulary(study: Study | None, comparisons: Any) -> NamedVocabulary | None:
    """The vocabulary of the questions where the prior needs none, for the taste file; None if it isn't known."""
    if study is None:
        return recognised_vocabulary(comparisons.texts)
    try:
        return study.vocabulary()
    except ValueError:  # its files are gone, which only the other priors need
        return None
