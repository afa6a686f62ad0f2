"""``edpbrl personalize``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import counting, output, quiet_libraries, shown
from edpbrl_gym.cli.drawing import Drawing
from edpbrl_gym.cli.encoders import select_encoder
from edpbrl_gym.cli.errors import Stopped, UsageError, bad_arguments
from edpbrl_gym.rendering.settings import ImageSettings

__all__ = ["Personalize", "run"]


@dataclass(frozen=True)
class Personalize:
    """Write the best prompts for a taste, compare tastes, draw the prompts."""

    theta: Positional[Path]
    """Taste file of `edpbrl estimate`."""
    vocabulary: str | None = None
    """Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical order (None:
    images)."""
    encoder: str | None = None
    """Text encoder (None: the one named in the taste file; a custom one must be given)."""
    base: tuple[str, ...] = ()
    """Base prompts, in quotes: every prompt begins with one of them, in place of the first step."""
    count: int = 10
    """Prompts for each base and taste."""
    beam_width: int = 20
    """Partial prompts kept after each step; more find better prompts and take longer."""
    shortlist: int = 16
    """Tokens of each step tried after each partial prompt."""
    per_base: int = 1
    """At most so many prompts with the same first token."""
    split: Literal["all", "train", "test"] = "all"
    """Use all tokens, or one part of the split (test: the held-out 25%)."""
    seed: int = 0
    """Seed of the split and of the policy's draws."""
    tokens_per_step: int | None = None
    """Use at most so many tokens of each step, drawn with --subset-seed (None: all)."""
    subset_seed: int = 0
    """Seed of the drawn tokens."""
    out: Path = Path("runs/prompts.csv")
    """CSV file for the prompts."""

    name: str = "ED-PBRL"
    """Name of the taste in tables and on the sheet."""
    compare: tuple[str, ...] = ()
    """More tastes to compare with, as NAME=FILE, such as one learnt from random questions."""
    truth: str | None = None
    """The true taste where it is known: a sentence, or a taste file. Gives every prompt its GTScore."""
    policy: Path | None = None
    """PPO or MaskablePPO (.zip) trained for the taste, whose prompts are ranked too."""
    policy_samples: int = 256
    """Prompts drawn from the policy."""

    model: str | None = None
    """Text-to-image model by hub id or folder: draws the best prompts and a contact sheet (None: no pictures)."""
    pictures: int = 3
    """Prompts drawn for each base and taste."""
    sheet: Path | None = None
    """Contact sheet (None: beside the prompts, with .png)."""
    images: OmitArgPrefixes[ImageSettings] = field(default_factory=ImageSettings)
    image_seed: int = 0
    """Seed of the noise, the same for all pictures, so that they differ by their prompts only."""
    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    score_guided: float | None = None
    """Also draw each base guided towards each taste: path length as a share of its embeddings' norm, such as 0.1."""
    projection: str | None = None
    """For --score-guided: CLIPTextModelWithProjection of the model's text encoder, by hub id or folder."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need; that of an encoder named in a file is asked for later."""
        from edpbrl_gym.features import encoder_needs

        drawing = () if self.model is None else ("diffusers", "torch", "transformers", "PIL")
        return [
            *([] if self.encoder is None else encoder_needs(self.encoder)),
            *(Need(package, "--model", "images") for package in drawing),
            *([] if self.policy is None else [Need("torch", "--policy")]),
        ]


def run(options: Personalize) -> None:
    """Search the best prompts for one or more tastes, write them as CSV and draw them."""
    from edpbrl_gym._places import hold_place, prepare_place
    from edpbrl_gym.personalize.rankings import rank_prompts

    options = replace(options, base=tuple(base.strip() for base in options.base))
    names = _check(options)
    places = [options.out, *([] if options.model is None else [_sheet(options)])]
    for place in places:
        prepare_place(place)  # before minutes of work, not after
    locks = [hold_place(place) for place in places]
    quiet_libraries()
    tastes, encoder = _tastes(options, names)
    vocabulary = _vocabulary(options)
    searches = _searches(options, list(names), vocabulary, encoder)
    truth = None if options.truth is None else _truth(options.truth, encoder)
    studio = None if options.model is None else _studio(options, encoder)
    encoder.encode(vocabulary.all_tokens, progress=True)
    bases = options.base or (None,)
    with counting("search") as progress:
        rankings = rank_prompts(tastes, searches, encoder, bases=bases, truth=truth, track=progress)
    _write(options, rankings)
    console = output()
    for ranking in rankings:
        _print(console, ranking)
    if studio is not None:
        try:
            files = _draw(options, studio, rankings, tastes, truth)
        except KeyboardInterrupt:
            raise Stopped(
                f"stopped; the prompts are in {shown(options.out)}, and the same command resumes with the pictures"
            ) from None
        for file in files:
            console.print(f"Contact sheet: {shown(file)}", soft_wrap=True)
    console.print(f"Written: {shown(options.out)}", soft_wrap=True)
    del locks


def _check(options: Personalize) -> dict[str, Path]:
    """Check the arguments; return the taste files by name."""
    from edpbrl_gym._validation import check_count, check_number, check_path

    with bad_arguments():
        check_path(options.vocabulary, "vocabulary")
        for count in ("count", "beam_width", "shortlist", "per_base", "policy_samples", "pictures"):
            check_count(getattr(options, count), f"--{count.replace('_', '-')}")
        check_count(options.seed, "--seed", minimum=0)
        check_count(options.subset_seed, "--subset-seed", minimum=0)
        if options.tokens_per_step is not None:
            check_count(options.tokens_per_step, "--tokens-per-step")
        files = {options.name: options.theta}
        for pair in options.compare:
            name, sign, file = (part.strip() for part in pair.partition("="))
            if not sign or not name or not file:
                raise UsageError(f"Expected --compare as NAME=FILE, got {pair!r}")
            if name in files:
                raise UsageError(f"Expected tastes with different names, got {name!r} twice; give --name or --compare")
            files[name] = Path(file)
        for taste in files.values():
            if not taste.is_file():
                raise UsageError(f"Expected a taste file at {taste}, found none; make one with `edpbrl estimate`")
        if not all(options.base) or len(set(options.base)) < len(options.base):
            raise UsageError("Expected different base prompts with words in them; leave --base out to search bases too")
        if options.score_guided is not None:
            check_number(options.score_guided, "--score-guided", minimum=0.0)
            if options.model is None or not options.base:
                raise UsageError(
                    "Expected --model and --base with --score-guided: it draws the base guided towards a taste"
                )
        if options.projection is not None and options.score_guided is None:
            raise UsageError("Expected --score-guided with --projection, which nothing else uses")
        if options.model is not None and _sheet(options) == options.out:
            raise UsageError(f"Expected different files for the prompts and the sheet, got {options.out} for both")
        if options.sheet is not None and options.model is None:
            raise UsageError("Expected --model with --sheet: a sheet needs a text-to-image model for its pictures")
    return files


def _tastes(options: Personalize, files: dict[str, Path]) -> tuple[dict[str, Any], Any]:
    """Each theta by name, and the encoder with which all of them were estimated."""
    from edpbrl_gym.personalize.taste import load_taste

    loaded = {name: load_taste(file) for name, file in files.items()}
    encoder = _encoder(options, loaded[options.name].provenance)
    for name, taste in loaded.items():
        _check_taste(taste, encoder, files[name])
    return {name: taste.theta for name, taste in loaded.items()}, encoder


def _encoder(options: Personalize, provenance: dict[str, Any]) -> Any:
    from edpbrl_gym.features import load_encoder

    return load_encoder(select_encoder(options.encoder, provenance.get("encoder"), options.theta))


def _check_taste(taste: Any, encoder: Any, file: Path) -> None:
    """Refuse a taste of another encoder: its scores would have no meaning."""
    from edpbrl_gym._validation import check_array

    fingerprint = taste.provenance.get("encoder_fingerprint")
    if fingerprint is not None and encoder.fingerprint != fingerprint:
        raise ValueError(
            f"Expected the encoder with which {file} was estimated ({taste.provenance.get('encoder')}, sha256 "
            f"{fingerprint[:16]}), got {encoder.name} (sha256 {encoder.fingerprint[:16]}); load the same weights"
        )
    check_array(taste.theta, "theta", shape=(encoder.dimension,), hint=f"it was not estimated with {encoder.name}")


def _truth(text: str, encoder: Any) -> Any:
    """The true theta of a sentence, or of a taste file."""
    from edpbrl_gym.personalize.taste import load_taste

    path = Path(text)
    if text.endswith(".safetensors") or (len(text) < 200 and path.is_file()):
        taste = load_taste(path)
        _check_taste(taste, encoder, path)
        return taste.theta
    if not text.strip():
        raise UsageError("Expected --truth as a sentence or a taste file, got an empty text")
    return encoder.encode([text])[0].astype(float)


def _vocabulary(options: Personalize) -> Any:
    from edpbrl_gym.vocabulary import load_vocabulary

    vocabulary = load_vocabulary(options.vocabulary)
    if options.split != "all":
        vocabulary = vocabulary.split(options.seed)[0 if options.split == "train" else 1]
    if options.tokens_per_step is not None:
        vocabulary = vocabulary.subset(options.tokens_per_step, options.subset_seed)
    return vocabulary


def _searches(options: Personalize, names: list[str], vocabulary: Any, encoder: Any) -> list[tuple[str, str, Any]]:
    """Searches of prompts: beam search for every taste, and the policy for the taste it was trained for."""
    from edpbrl_gym._seeds import generator
    from edpbrl_gym.personalize.policy import PromptPolicy, policy_prompts
    from edpbrl_gym.personalize.search import best_prompts

    def beam(theta: Any, base: str | None) -> Any:
        return best_prompts(
            vocabulary,
            encoder,
            theta,
            count=options.count,
            base=base,
            width=options.beam_width,
            shortlist=options.shortlist,
            per_base=options.per_base,
        )

    searches: list[tuple[str, str, Any]] = [(name, "beam", beam) for name in names]
    if options.policy is not None:
        policy = PromptPolicy(options.policy, vocabulary)

        def sampled(theta: Any, base: str | None) -> Any:
            return policy_prompts(
                policy,
                encoder,
                theta,
                generator(options.seed, "policy", base or ""),
                count=options.count,
                samples=options.policy_samples,
                base=base,
                per_base=options.per_base,
            )

        searches.insert(1, (options.name, "policy", sampled))
    return searches


def _studio(options: Personalize, encoder: Any) -> tuple[Any, Any]:
    """The renderer and, for score guidance, its guide; checks the models before the search."""
    from edpbrl_gym.rendering.guidance import check_same_features
    from edpbrl_gym.rendering.guided import GuidedRenderer
    from edpbrl_gym.rendering.settings import check_seed

    with bad_arguments():
        settings = options.images.of(str(options.model))
        check_seed(options.image_seed, "--image-seed")
    renderer = options.drawing.renderer(settings)
    if not renderer.fingerprint or options.score_guided is None:
        return renderer, None
    guided = GuidedRenderer(renderer, options.projection)
    texts = list(options.base)
    check_same_features(guided.guide, encoder.encode(texts), texts, encoder.name)
    return renderer, guided


def _draw(options: Personalize, studio: tuple[Any, Any], rankings: Any, tastes: Any, truth: Any) -> list[Path]:
    """Render the pictures, add their paths to the CSV, and draw the sheet."""
    from edpbrl_gym.personalize.rankings import GuidedPicture, Picture
    from edpbrl_gym.personalize.sheet import comparison_sheet

    renderer, guided = studio
    best = [prompt.text for ranking in rankings for prompt in ranking.prompts[: options.pictures]]
    prompts = list(dict.fromkeys([*options.base, *best]))
    with counting("render") as progress:
        images = renderer.render(prompts, seed=options.image_seed, progress=progress)
    pictures = {image.prompt: Picture(image.path, image.flagged) for image in images}
    guided_pictures = []
    if guided is not None:
        pairs = [(base, name) for base in options.base for name in tastes]
        with counting("guide") as progress:
            for number, (base, name) in enumerate(pairs):
                progress(number, len(pairs))
                image, moved = guided.render(base, tastes[name], options.score_guided, seed=options.image_seed)
                guided_pictures.append(
                    GuidedPicture(
                        taste=name,
                        base=base,
                        strength=moved.strength,
                        score=moved.score,
                        base_score=moved.base_score,
                        true_score=None if truth is None else float(moved.features @ truth),
                        picture=Picture(image.path, image.flagged),
                    )
                )
            progress(len(pairs), len(pairs))
    _write(options, rankings, pictures=pictures, guided=guided_pictures)
    height, width = options.images.height, options.images.width
    size = f", {width or 'own'} x {height or 'own'} pixels" if height or width else ""
    model = Path(str(options.model))
    name = model.resolve().name if model.is_dir() else str(options.model)
    how = f"{options.images.steps} steps, guidance {options.images.guidance:g}, seed {options.image_seed}{size}"
    return comparison_sheet(
        rankings,
        pictures,
        _sheet(options),
        guided=guided_pictures,
        count=options.pictures,
        title=f"{name}, {how}",
    )


def _sheet(options: Personalize) -> Path:
    return options.sheet or options.out.with_suffix(".png")


def _write(options: Personalize, rankings: Any, **pictures: Any) -> None:
    from edpbrl_gym.comparisons.csv_files import write_csv
    from edpbrl_gym.personalize.rankings import rankings_table

    write_csv(options.out, *rankings_table(rankings, **pictures))


def _print(console: Any, ranking: Any) -> None:
    """Print a ranking as a headed table."""
    from rich.table import Table

    kind = "Best" if ranking.source == "beam" else f"Best {ranking.source}"
    title = f"{kind} prompts by the estimated taste {ranking.taste}"
    if ranking.base is not None:
        title += f" for '{ranking.base}' (RankScore {ranking.base_score:.3f}"
        title += ")" if ranking.base_true_score is None else f", GTScore {ranking.base_true_score:.3f})"
    console.print(title, style="bold")
    table = Table()
    table.add_column("#", justify="right")
    table.add_column("RankScore", justify="right")
    if ranking.true_scores is not None:
        table.add_column("GTScore", justify="right")
    table.add_column("prompt")
    for number, prompt in enumerate(ranking.prompts):
        true = [] if ranking.true_scores is None else [f"{ranking.true_scores[number]:.3f}"]
        table.add_row(str(number + 1), f"{prompt.score:.3f}", *true, prompt.text)
    console.print(table)
