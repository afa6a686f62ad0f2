"""``edpbrl fit-population``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.answers import answers_encoder, check_encoder_of_population, select_encoder
from edpbrl_gym.cli.arguments import check_counts
from edpbrl_gym.cli.console import UsageError, bad_arguments, bullet, command, output, quiet_libraries, shown
from edpbrl_gym.cli.design_file import DESIGN, NamedVocabulary, option_vocabulary, read_study, words_of_answers

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.estimation.items import ItemsPrior
    from edpbrl_gym.estimation.population import Population
    from edpbrl_gym.estimation.population.model import Kind
    from edpbrl_gym.estimation.taste_prior import TastePrior
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.likelihood import Terms

__all__ = ["FitPopulation", "run"]

_MANY = 20  # features, above which a full covariance has too many numbers
_TOLD = 200  # people whose answers are predicted for the report
_FAVOURITES = 5


@dataclass(frozen=True)
class FitPopulation:
    """Learn from the answers of many people what a new person may like."""

    answers: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="ANSWERS ...")] = ()
    """One file for each person, or folders of them: filled-in questions files of `edpbrl design` (.csv, .tsv,
    .parquet), or comparisons (.parquet); or long tables of many people, with a row for each option (person, question,
    option, chosen and attributes)."""
    kind: Literal["gaussian", "factors", "items"] | None = None
    """gaussian (one covariance of all features), factors (a few common directions), or items (how much people like each
    item of a pool that all were asked about, beside tastes) (None: gaussian up to 20 features, factors above)."""
    factors: int | None = None
    """Number of factors (None: the number with the highest likelihood of people left out, which takes a while)."""
    base: Literal["vocabulary", "identity"] | None = None
    """What the covariance is shrunk towards: the embeddings of the vocabulary, or no direction (None: vocabulary if the
    options are texts)."""
    vocabulary: str | None = None
    """Vocabulary (images, interiors, posters, styles) or folder of token files (None: that of design.json beside the
    first answers, else the built-in one of whose tokens the options are made, else the phrases of the options)."""
    encoder: str | None = None
    """Text encoder of questions files (None: that of design.json beside them, else minilm)."""
    minimum_people: int = 20
    """Fewest people; statistics of fewer could give away the answers of one."""
    update: Path | None = None
    """Population of any kind to update with these people, who must be others; its own people's answers are not needed.
    One of items stays about its pool."""
    forgetting: float | None = None
    """With --update: how much weight its people lose, 0 to below 1, for tastes that drift (None: 0)."""
    seed: int = 0
    """Seed of the groups by which the number of factors is chosen."""
    out: Path = Path("runs/population.safetensors")
    """File for the population."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.features import encoder_needs

        return [] if self.encoder is None else encoder_needs(self.encoder)


def run(options: FitPopulation) -> None:
    """Read everybody's answers, fit or update the population, write it, and say what it looks like."""
    from edpbrl_gym._places import hold_place, prepare_place
    from edpbrl_gym._validation import check_path
    from edpbrl_gym.comparisons.answer_files import answer_files, form_of, read_people
    from edpbrl_gym.estimation.items import ItemsPrior
    from edpbrl_gym.estimation.population import Population
    from edpbrl_gym.estimation.population.storage import PopulationFile
    from edpbrl_gym.features import embed_tokens
    from edpbrl_gym.likelihood import format_of

    with bad_arguments():
        check_path(options.vocabulary, "vocabulary")
        _check(options)
        files = answer_files(options.answers)
    forms = [form_of(path) for path in files]
    if not {"long", "pictures"} & set(forms):
        _check_group(len(files), options)
    prepare_place(options.out)
    with hold_place(options.out):
        quiet_libraries()
        earlier = None if options.update is None else PopulationFile.load(options.update)
        questions = [path for path, form in zip(files, forms, strict=True) if form == "questions"]
        loaded: dict[str, TextEncoder] = {}  # one at most, as people share their features
        encoder_of = functools.partial(_encoder_of, option=options.encoder, loaded=loaded)
        answers = read_people(files, encoder_of, progress=True)
        _check_group(len(answers), options)
        if options.update is not None and earlier is not None:
            check_encoder_of_population(earlier, answers[0].metadata, answers[0].dimension, options.update)
        if options.kind == "items" or isinstance(earlier, ItemsPrior):
            if isinstance(earlier, Population) or options.vocabulary is not None:
                raise UsageError(
                    f"Expected no --vocabulary, and with --kind items a population of items to update, got "
                    f"{options.vocabulary or f'one of tastes in {options.update}'}; leave it out"
                )
            _fit_items(options, answers, earlier)
            _tell_written(options)
            return
        words = _vocabulary(options, answers, (questions or files)[0], required=earlier is None)
        embedded = None
        if words is not None:
            known = next(iter(loaded.values()), None)
            encoder = known or answers_encoder(options.encoder, answers[0], files[0], advice=_IDENTITY)
            embedded = embed_tokens(words.vocabulary, encoder, progress=True)
        terms = [one.terms(format_of(one.responses)) for one in answers]
        if earlier is None:
            found = _fitted(options, answers, terms, embedded)
        else:
            minimum = options.minimum_people
            found = earlier.updated(terms, forgetting=options.forgetting or 0.0, minimum_people=minimum)
        found = _with_origin(found, earlier, options, answers, words)
        found.save(options.out)
        _describe(found, terms, words, embedded)
        _tell_written(options)


def _tell_written(options: FitPopulation) -> None:
    console = output()
    bullet(console, "Written", shown(options.out))
    estimate = command("edpbrl", "estimate", "ANSWERS", "--prior", options.out)
    console.print(f"A new person: {estimate}", soft_wrap=True)


def _check(options: FitPopulation) -> None:
    """Refuse values out of range, and options that would be ignored."""
    from edpbrl_gym._validation import check_number
    from edpbrl_gym.features import check_encoder_spec

    if not options.answers:
        raise UsageError("Expected files of answers, one for each person, or a folder of them, got none")
    if options.out.suffix != ".safetensors":
        raise UsageError(f"Expected --out with a name that ends in .safetensors, got {options.out}")
    check_counts(options, minimum_people=1, seed=0, factors=0)
    if options.encoder is not None:
        check_encoder_spec(options.encoder)
    if options.factors is not None and options.kind != "factors":
        raise UsageError(f"Expected --kind factors with --factors, got {options.kind or 'no --kind'}")
    if options.kind == "items" and (options.base or options.vocabulary) is not None:
        raise UsageError("Expected no --base and no --vocabulary with --kind items, which learns from the items alone")
    if options.base == "identity" and options.vocabulary is not None:
        raise UsageError("Expected --base vocabulary with --vocabulary, got identity; leave one out")
    if options.update is None:
        if options.forgetting is not None:
            raise UsageError("Expected --update with --forgetting, got none; there is nobody to forget")
        return
    if not 0.0 <= check_number(options.forgetting or 0.0, "--forgetting") < 1.0:
        raise UsageError(
            f"Expected --forgetting of at least 0 and below 1, got {options.forgetting}; to forget everyone, fit a new "
            "population"
        )
    for name in ("kind", "factors", "base"):
        if getattr(options, name) not in (None, "items"):
            raise UsageError(f"Expected no --{name} with --update, which keeps that of {options.update}; leave it out")
    if not options.update.is_file():
        raise UsageError(f"Expected the population to update at {options.update}, found none; check the path")


def _check_group(people: int, options: FitPopulation) -> None:
    if people < options.minimum_people:
        raise UsageError(
            f"Expected answers of at least {options.minimum_people} people, got {people}: statistics of fewer could "
            "give away the answers of one; add files, or lower --minimum-people if all agreed to that"
        )


_IDENTITY = ", or --base identity, which needs none"


def _encoder_of(path: Path, option: str | None, loaded: dict[str, TextEncoder]) -> TextEncoder:
    """The encoder of a file of questions: --encoder, or that of the design.json beside it; each is loaded once."""
    from edpbrl_gym.features import load_encoder

    study = read_study(path)
    name = select_encoder(option, "minilm" if study is None else study.encoder, path.parent / DESIGN)
    if name not in loaded:
        loaded[name] = load_encoder(name)
    return loaded[name]


def _vocabulary(
    options: FitPopulation, answers: Sequence[Comparisons], file: Path, *, required: bool
) -> NamedVocabulary | None:
    """The vocabulary of the base prior, and of the words of the report; None: without."""
    from edpbrl_gym.comparisons.picture_answers import PICTURE_ENCODER

    known = answers[0].metadata
    if "attributes" in known or str(known.get("encoder")).startswith(PICTURE_ENCODER):
        if options.vocabulary is not None or options.base == "vocabulary" or options.encoder is not None:
            raise UsageError(
                "Expected no --vocabulary, --base vocabulary or --encoder with the attributes of a long table, or with "
                "pictures, which are no texts; leave it out"
            )
        return None
    texts = [one.texts for one in answers]
    if options.vocabulary is not None:
        return option_vocabulary(options.vocabulary)
    if options.base == "identity" or (options.base is None and texts[0] is None and "encoder" not in known):
        return None
    try:
        study = read_study(file)
        if study is not None:
            return study.vocabulary()
        together = [question for some in texts for question in some or ()] if all(texts) else None
        return words_of_answers(together, file, instead="--base identity")
    except ValueError:
        if required:
            raise
        return None  # an update needs no words but for its report


def _fitted(
    options: FitPopulation, answers: Sequence[Comparisons], terms: Sequence[Terms], embedded: Any
) -> Population:
    from edpbrl_gym.estimation import attribute_prior
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.population import fit_population

    kind: Kind = "factors" if options.kind == "factors" else "gaussian"
    if options.kind is None and terms[0].dimension > _MANY:
        kind = "factors"
    if kind == "factors" and options.factors is None:
        output().print("Choosing the number of factors by the likelihood of people left out (--factors sets it).")
    base = None if embedded is None else VocabularyPrior(embedded).base
    if "attributes" in answers[0].metadata and options.base is None:
        base = attribute_prior(answers)
    return fit_population(
        terms,
        kind=kind,
        base=base,
        factors=options.factors,
        seed=options.seed,
        progress=True,
        minimum_people=options.minimum_people,
    )


def _fit_items(options: FitPopulation, answers: Sequence[Comparisons], earlier: ItemsPrior | None) -> None:
    """What is liked in each item of the pool that all were asked about, written and told."""
    import numpy as np

    from edpbrl_gym.estimation.items import ItemsPrior
    from edpbrl_gym.estimation.population.items import fit_crowd
    from edpbrl_gym.likelihood import format_of

    if earlier is None:
        items = np.unique(np.concatenate([one.features[one.present] for one in answers]), axis=0)
        with bad_arguments():
            prior = ItemsPrior(items, blocks=answers[0].metadata.get("blocks"))
    else:
        prior = earlier
    terms = [prior.mapped(one).terms(format_of(one.responses)) for one in answers]
    crowd = fit_crowd(
        terms,
        prior,
        minimum_people=options.minimum_people,
        earlier=prior.crowd,
        forgetting=options.forgetting or 0.0,
    )
    number = sum(len(one) for one in answers)
    origin = {**_features_of(answers[0]), "answers": number} if earlier is None else _added(earlier, options, number)
    prior = prior.with_crowd(crowd, origin)
    prior.save(options.out)
    console = output()
    total = "" if earlier is None else f"; {crowd.people} people with the earlier ones"
    bullet(console, "People", f"{len(answers)} with {number} answers{total}")
    few = int((crowd.seen < options.minimum_people).sum())
    kept = f"; {few} shown to fewer than {options.minimum_people} people count by their features alone" if few else ""
    bullet(console, "Items", f"{len(crowd.seen)}, each shown to {np.median(crowd.seen):.0f} people (median){kept}")
    parts = prior.liking()
    whole = sum(parts.values())
    named = {"shared": "shared by all", "taste": "of each person's taste", "own": "of one person at one item"}
    bullet(console, "Liking", ", ".join(f"{value / whole:.0%} {named[name]}" for name, value in parts.items()))


def _features_of(answers: Comparisons) -> dict[str, Any]:
    """What is known of the features of answers."""
    known = ("encoder", "encoder_fingerprint", "attributes")
    return {key: answers.metadata[key] for key in known if key in answers.metadata}


def _with_origin(
    population: Population,
    earlier: Population | None,
    options: FitPopulation,
    answers: Sequence[Comparisons],
    words: NamedVocabulary | None,
) -> Population:
    """With what is known of its making: no names of people or files."""
    number = sum(len(one) for one in answers)
    if earlier is not None:
        return replace(population, provenance=_added(earlier, options, number))
    metadata = answers[0].metadata
    origin = _features_of(answers[0])
    if words is not None:
        origin["vocabulary_fingerprint"] = words.vocabulary.fingerprint
    origin |= {"base": "identity" if words is None else "vocabulary", "answers": number, "seed": options.seed}
    return replace(population, features=str(metadata.get("encoder", "")), provenance=origin)


def _added(earlier: TastePrior, options: FitPopulation, number: int) -> dict[str, Any]:
    """What is known of the making of an updated population, with so many more answers."""
    before = dict(earlier.provenance)
    origin = {**before, "answers": before.get("answers", 0) + number, "updates": before.get("updates", 0) + 1}
    return {**origin, "forgetting": options.forgetting or 0.0}


def _describe(population: Population, terms: Sequence[Terms], words: NamedVocabulary | None, embedded: Any) -> None:
    from edpbrl_gym.estimation.population.description import favourites, likelihood_per_answer, taste_shares

    console = output()
    number = sum(len(one) for one in terms)
    total = "" if population.people == len(terms) else f"; {population.people} people with the earlier ones"
    bullet(console, "People", f"{len(terms)} with {number} answers{total}")
    bullet(console, "Kind", f"{population.kind}, {population.dimension} features")
    if words is not None:
        bullet(console, "Vocabulary", words.name)
    some = terms[:: -(-len(terms) // _TOLD)]
    told, guessed = likelihood_per_answer(population, some)
    asked = "of these people" if len(some) == len(terms) else f"of {len(some)} of these people"
    bullet(console, "Fit", f"log-likelihood {told:.3f} for each answer {asked} ({guessed:.3f} by guessing)")
    named = {"shared": "shared by all", "own": "of each person's own"}
    shares = ", ".join(f"{share:.0%} {named.get(name, name)}" for name, share in taste_shares(population).items())
    bullet(console, "Tastes", shares)
    if words is not None:
        tokens = words.vocabulary.all_tokens
        rows = favourites(population, embedded, words.vocabulary.sizes, _FAVOURITES)
        bullet(console, "Most liked", ", ".join(tokens[row] for row in rows))
