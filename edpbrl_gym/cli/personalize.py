"""``edpbrl personalize``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.answers import select_encoder
from edpbrl_gym.cli.arguments import Drawing, check_counts, say_what_is_drawn
from edpbrl_gym.cli.console import Stopped, UsageError, bad_arguments, bullet, counting, output, quiet_libraries, shown
from edpbrl_gym.rendering.settings import check_seed, sampling

__all__ = ["Personalize", "run"]


@dataclass(frozen=True)
class Personalize:
    """Write the best prompts for a taste, compare tastes, draw the prompts."""

    theta: Positional[Path]
    """Taste file of `edpbrl ask` or `edpbrl estimate`."""
    vocabulary: str | None = None
    """Vocabulary (images, interiors, posters, styles) or folder of token files, one per step, in alphabetical order
    (None: the one with which the taste was learnt; images where its file doesn't say)."""
    encoder: str | None = None
    """Text encoder (None: the one named in the taste file; a custom one must be given)."""
    base: tuple[str, ...] = ()
    """Base prompts, in quotes: every prompt begins with one of them, in place of the step that says what is shown (by
    its name: subject, bases, room), or before all others."""
    count: int = 10
    """Prompts for each base and taste."""
    beam_width: int = 20
    """Partial prompts kept after each step; more find better prompts and take longer."""
    shortlist: int = 16
    """Tokens of each step tried after each partial prompt."""
    shared: float = 0.5
    """Any two prompts have at most this share of their phrases in common (0: none; 1: only different prompts)."""
    split: Literal["all", "train", "test"] = "all"
    """Use all tokens, or one part of the split (test: the held-out 25%)."""
    seed: int = 0
    """Seed of the split."""
    tokens_per_step: int | None = None
    """Use at most so many tokens of each step, drawn at random (None: all)."""
    out: Path = Path("runs/prompts.csv")
    """CSV file for the prompts."""
    wildcards: Path | None = None
    """Folder for the taste as weighted wildcards of dynamic prompts, a file a step and one prompt with all."""
    page: Path | None = None
    """HTML file to send: the best prompts and, where a renderer draws, their pictures."""

    name: str = "ED-PBRL"
    """Name of the taste in tables and on the sheet."""
    compare: tuple[str, ...] = ()
    """More tastes to compare with, as NAME=FILE, such as one learnt from random questions."""
    truth: str | None = None
    """The true taste where it is known: a sentence, or a taste file. Gives every prompt its GTScore."""

    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    draw: int = 3
    """Prompts of each base and taste that the renderer draws, with a contact sheet (without --renderer: none)."""
    sheet: Path | None = None
    """Contact sheet (None: beside the prompts, with .png)."""
    image_seed: int = 0
    """Seed of the noise, the same for all pictures, so that they differ by their prompts only."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.features import encoder_needs

        return [
            *([] if self.encoder is None else encoder_needs(self.encoder)),
            *self.drawing.needs(),
        ]


def run(options: Personalize) -> None:
    """Search the best prompts for one or more tastes, write them as CSV and draw them."""
    from edpbrl_gym._places import hold_place, prepare_place
    from edpbrl_gym.features import embed_tokens
    from edpbrl_gym.personalize.differing import shortage
    from edpbrl_gym.personalize.rankings import rank_prompts
    from edpbrl_gym.personalize.search import best_prompts

    options = replace(options, base=tuple(base.strip() for base in options.base))
    names = _check(options)
    destinations = [options.out, *([] if options.drawing.renderer is None else [_sheet(options)])]
    destinations += [] if options.wildcards is None else [options.wildcards / "prompt.txt"]
    destinations += [] if options.page is None else [options.page]
    for destination in destinations:
        prepare_place(destination)  # before minutes of work, not after
    with ExitStack() as held:
        for destination in destinations:
            held.enter_context(hold_place(destination))
        quiet_libraries()
        loaded, raw, encoder = _tastes(options, names)
        tastes = {name: taste.theta for name, taste in loaded.items()}
        vocabulary, source = _vocabulary(options, loaded[options.name])
        truth = None if options.truth is None else _truth(options.truth, raw, encoder)
        renderer, missing = None, None
        if options.drawing.renderer is not None:
            with bad_arguments():
                check_seed(options.image_seed, "--image-seed")
                renderer = held.enter_context(options.drawing.load())
            assert renderer.fingerprint  # the model is checked before the search
        embed_tokens(vocabulary, encoder, progress=True)
        bases = options.base or (None,)

        def search(theta: Any, base: str | None) -> Any:
            return best_prompts(
                vocabulary,
                encoder,
                theta,
                count=options.count,
                base=base,
                width=options.beam_width,
                shortlist=options.shortlist,
                shared=options.shared,
            )

        with counting("search") as progress:
            rankings = rank_prompts(tastes, search, encoder, bases=bases, truth=truth, track=progress)
        _write(options, rankings)
        console = output()
        bullet(console, "Vocabulary", source)
        for ranking in rankings:
            _print(console, ranking)
            if line := shortage(len(ranking.prompts), options.count):
                console.print(line, soft_wrap=True)
        if options.wildcards is not None:
            from edpbrl_gym.personalize.keeping import write_wildcards

            about = vocabulary.with_subject(options.base[0]) if len(options.base) == 1 else vocabulary
            files = write_wildcards(options.wildcards, about, encoder, tastes[options.name])
            console.print(f"Wildcards: {shown(files[-1])} and {len(files) - 1} beside it", soft_wrap=True)
        pictures: dict[str, Any] = {}
        if renderer is not None:
            try:
                files, pictures, missing = _draw(options, renderer, rankings)
            except KeyboardInterrupt:
                raise Stopped(
                    f"stopped; the prompts are in {shown(options.out)}, and the same command resumes with the pictures"
                ) from None
            for file in files:
                console.print(f"Contact sheet: {shown(file)}", soft_wrap=True)
        if options.page is not None:
            _write_page(options, rankings, pictures, loaded[options.name].provenance.get("questions"))
            console.print(f"Page: {shown(options.page)}", soft_wrap=True)
        console.print(f"Written: {shown(options.out)}", soft_wrap=True)
        if missing is not None:
            raise missing


def _check(options: Personalize) -> dict[str, Path]:
    from edpbrl_gym._validation import MOST_PROMPTS, check_number, check_path

    with bad_arguments():
        check_path(options.vocabulary, "vocabulary")
        check_counts(options, most=MOST_PROMPTS, count=1, beam_width=1, shortlist=1, draw=1)
        if check_number(options.shared, "--shared", minimum=0.0) > 1.0:
            raise UsageError(f"Expected --shared from 0 to 1, a share of the phrases, got {options.shared:g}")
        check_counts(options, seed=0, tokens_per_step=1)
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
        if options.drawing.renderer is not None and _sheet(options) == options.out:
            raise UsageError(f"Expected different files for the prompts and the sheet, got {options.out} for both")
        if options.page is not None and options.page in (options.out, _sheet(options)):
            raise UsageError(f"Expected a file of its own for the page, got {options.page} for two")
        if options.sheet is not None and options.drawing.renderer is None:
            raise UsageError("Expected --renderer with --sheet: somebody must draw the pictures of a sheet")
    return files


def _tastes(options: Personalize, files: dict[str, Path]) -> tuple[dict[str, Any], Any, Any]:
    """The tastes, their encoder, and that of the features that they are about."""
    from edpbrl_gym.features import load_encoder
    from edpbrl_gym.personalize.taste import load_taste

    loaded = {name: load_taste(file) for name, file in files.items()}
    known = loaded[options.name].provenance
    if "attributes" in known:
        raise UsageError(
            f"Expected a taste for texts in {options.theta}, got one for the attributes "
            f"{', '.join(known['attributes'])}, of which no prompts are made; estimate from answers about texts"
        )
    encoder = load_encoder(select_encoder(options.encoder, known.get("encoder"), options.theta))
    for name, taste in loaded.items():
        mapped = _encoder_of(taste, encoder, files[name])
        if mapped.fingerprint != loaded[options.name].encoder(encoder).fingerprint:
            raise UsageError(
                f"Expected tastes about the same features to compare, got {files[name]} with another feature map than "
                f"{options.theta}; estimate both under the same prior"
            )
    return loaded, encoder, loaded[options.name].encoder(encoder)


def _encoder_of(taste: Any, encoder: Any, file: Path) -> Any:
    """The encoder of a taste's features; a taste of another encoder is refused: its scores would have no meaning."""
    from edpbrl_gym._validation import check_array

    fingerprint = taste.provenance.get("encoder_fingerprint")
    if fingerprint is not None and encoder.fingerprint != fingerprint:
        raise ValueError(
            f"Expected the encoder with which {file} was estimated ({taste.provenance.get('encoder')}, sha256 "
            f"{fingerprint[:16]}), got {encoder.name} (sha256 {encoder.fingerprint[:16]}); load the same weights"
        )
    mapped = taste.encoder(encoder)
    check_array(taste.theta, "theta", shape=(mapped.dimension,), hint=f"it was not estimated with {encoder.name}")
    return mapped


def _truth(text: str, raw: Any, encoder: Any) -> Any:
    from edpbrl_gym.personalize.taste import load_taste

    path = Path(text)
    if text.endswith(".safetensors") or (len(text) < 200 and path.is_file()):
        taste = load_taste(path)
        _encoder_of(taste, raw, path)
        return taste.theta
    if not text.strip():
        raise UsageError("Expected --truth as a sentence or a taste file, got an empty text")
    return encoder.encode([text])[0].astype(float)


def _vocabulary(options: Personalize, taste: Any) -> tuple[Any, str]:
    from edpbrl_gym.vocabulary import load_vocabulary

    learnt, reason = None, ""
    try:
        learnt = taste.vocabulary()
    except ValueError as error:
        reason = str(error)
    if options.vocabulary is not None:
        vocabulary = load_vocabulary(options.vocabulary)
        source = options.vocabulary
        if reason:
            source += f" ({shown(options.theta)}: {reason})"
        elif learnt is not None and learnt != vocabulary:
            source += f"; the taste was learnt with {_named(learnt)}"
    elif reason:
        raise UsageError(
            f"Expected --vocabulary, as {options.theta} can't say which words to write with: {reason}; give the folder "
            "of its token files, or another vocabulary"
        )
    elif learnt is None:
        vocabulary = load_vocabulary()
        source = f"images, as {shown(options.theta)} doesn't say with which one it was learnt (--vocabulary)"
    else:
        vocabulary, source = learnt, f"{_named(learnt)}, with which the taste was learnt"
    if options.split != "all":
        vocabulary = vocabulary.split(options.seed)[0 if options.split == "train" else 1]
    if options.tokens_per_step is not None:
        vocabulary = vocabulary.subset(options.tokens_per_step, 0)
    return vocabulary, source


def _named(vocabulary: Any) -> str:
    from edpbrl_gym.vocabulary import built_in_name

    steps = ", ".join(f"{name} {size}" for name, size in zip(vocabulary.names, vocabulary.sizes, strict=True))
    return built_in_name(vocabulary) or f"words of its own ({steps})"


def _draw(options: Personalize, renderer: Any, rankings: Any) -> tuple[list[Path], dict[str, Any], Any]:
    """The sheets, the pictures, and the error that says that some prompts have none."""
    from edpbrl_gym.personalize.rankings import Picture
    from edpbrl_gym.personalize.sheet import comparison_sheet

    best = [prompt.text for ranking in rankings for prompt in ranking.prompts[: options.draw]]
    prompts = list(dict.fromkeys([*options.base, *best]))
    say_what_is_drawn(renderer, prompts, options.image_seed)
    with counting("render") as progress:
        images, missing = renderer.render_some(prompts, seed=options.image_seed, progress=progress)
    pictures = {image.prompt: Picture(image.path, image.flagged) for image in images if image is not None}
    _write(options, rankings, pictures=pictures)
    height, width = options.drawing.images.height, options.drawing.images.width
    size = f", {width or 'own'} x {height or 'own'} pixels" if height or width else ""
    described = renderer.describe()
    model = Path(described["model"])
    name = model.resolve().name if model.is_dir() else described["model"]
    how = f"{sampling(described)}seed {options.image_seed}{size}"
    title = f"{name}, {how}"
    files = comparison_sheet(rankings, pictures, _sheet(options), count=options.draw, title=title)
    return files, pictures, missing


def _write_page(options: Personalize, rankings: Any, pictures: dict[str, Any], questions: Any) -> None:
    """The prompts of the first taste; where some are drawn, those."""
    from edpbrl_gym.personalize.keeping import PagePrompt, write_page

    assert options.page is not None
    prompts = [prompt for ranking in rankings if ranking.taste == options.name for prompt in ranking.prompts]
    drawn = {text: one.path.read_bytes() for text, one in pictures.items() if not one.flagged}
    kept = [prompt for prompt in prompts if not drawn or prompt.text in drawn] or prompts
    write_page(
        options.page,
        [PagePrompt(one.text, drawn.get(one.text)) for one in kept],
        title=options.base[0] if len(options.base) == 1 else "What I like",
        questions=questions if isinstance(questions, int) else None,
    )


def _sheet(options: Personalize) -> Path:
    return options.sheet or options.out.with_suffix(".png")


def _write(options: Personalize, rankings: Any, **pictures: Any) -> None:
    from edpbrl_gym.comparisons.delimited import write_csv
    from edpbrl_gym.personalize.rankings import rankings_table

    write_csv(options.out, *rankings_table(rankings, **pictures))


def _print(console: Any, ranking: Any) -> None:
    from edpbrl_gym.reporting.tables import TextTable

    title = f"Best prompts by the estimated taste {ranking.taste}"
    if ranking.base is not None:
        title += f" for '{ranking.base}' (RankScore {ranking.base_score:.3f}"
        title += ")" if ranking.base_true_score is None else f", GTScore {ranking.base_true_score:.3f})"
    console.print(title, style="bold")
    scores = [[f"{prompt.score:.3f}"] for prompt in ranking.prompts]
    if ranking.true_scores is not None:
        scores = [[*row, f"{true:.3f}"] for row, true in zip(scores, ranking.true_scores, strict=True)]
    header = ("prompt", "RankScore", *(() if ranking.true_scores is None else ("GTScore",)))
    rows = [(prompt.text, *row) for prompt, row in zip(ranking.prompts, scores, strict=True)]
    console.print(TextTable("", header, rows, words=1).rich())
