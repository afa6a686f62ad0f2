"""``edpbrl ask``: questions to one person, in the browser or in the terminal; at the end the taste is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tyro.conf import OmitArgPrefixes, Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.answers import check_population_file
from edpbrl_gym.cli.arguments import Drawing, check_counts
from edpbrl_gym.cli.ask_folder import AskSettings, begun, chosen_settings
from edpbrl_gym.cli.console import UsageError, bad_arguments, quiet_libraries

__all__ = ["Ask", "run"]

_PAGES = ("starlette", "uvicorn", "jinja2", "itsdangerous", "anyio", "idna")
_POSTERS = "posters"
_POOL, _SLOW_POOL = 200, 80  # prompts drawn ahead, of posters and words and of renderers that take seconds or money


@dataclass(frozen=True)
class Ask:
    """Answer questions about pictures in your browser, and get your taste, and prompts for it.

    Alone it asks about posters, which this package draws itself. With a subject and --renderer it tunes a style for
    that subject; with --pictures it asks about pictures that exist; with --terminal in words, in the terminal.
    """

    subject: Positional[str | None] = None
    """What every picture shows, such as "a lighthouse on a cliff": the options are that subject in different styles."""
    out: Path = Path("runs/ask")
    """Folder for the answers and the taste; where there are answers already, the questions go on."""
    terminal: bool = False
    """Ask in words in the terminal, or read answers from a pipe."""
    vocabulary: str | None = None
    """Vocabulary (posters, styles, images, interiors) or folder of token files, one per step, in alphabetical order
    (None: posters, styles with a subject, images in the terminal, or as before)."""
    pictures: Path | None = None
    """Ask about the pictures of this folder."""
    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    pool: int | None = None
    """Prompts that may be asked about, drawn ahead (None: 200 of posters and of words, 80 of other renderers, or as
    before)."""
    features: Literal["text", "picture", "both"] | None = None
    """Learn from the words of prompts, from what pictures look like, or from both (None: text, picture for --pictures,
    or as before)."""
    num_options: int | None = None
    """Options K of a question (None: 4 pictures, 9 prompts in words, one where each is rated, or as before)."""
    format: str | None = None
    """Answers: best, best-worst (the best and the worst option), ranking (the options in order as far as you like),
    rating (a level of each), like (yes or no to each) or ties (the best; can't tell teaches too) (None: best, rating
    of single pictures that a model or service draws, or as before)."""
    levels: int | None = None
    """Levels of a rating, 2 to 7 (None: 7 in the browser, 5 in the terminal, or as before)."""
    questions: int | None = None
    """Stop after so many questions, those of earlier calls among them (None: when you say so)."""
    planner: str | None = None
    """Who chooses the questions (None: adaptive, or as before)."""
    prior: str | None = None
    """What other people answered, a population.safetensors of `edpbrl fit-population`, or the name of another prior as
    for `edpbrl estimate` (None: words, or as before)."""
    feedback: Literal["prompt", "truncated", "state"] | None = None
    """In the terminal: compare complete prompts, prompts that grow by a phrase, or single phrases (None: prompt, or as
    before)."""
    encoder: str | None = None
    """Text encoder (None: minilm, or as before)."""
    seed: int | None = None
    """Seed of the questions (None: 0, or as before)."""
    count: int = 5
    """Prompts to write at the end."""
    no_open: bool = False
    """Only print the address of the page, open no browser."""
    port: int = 0
    """Port of the page (0: any free one)."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.estimation.priors import prior_needs
        from edpbrl_gym.features import encoder_needs
        from edpbrl_gym.features.images import PICTURE_FEATURES, image_encoder_needs
        from edpbrl_gym.planners.registry import planner_needs
        from edpbrl_gym.rendering.loading import renderer_needs

        # questions that go on have the encoder of their folder, which is asked for when it is loaded
        spec = self.encoder or (None if begun(self.out) else AskSettings.encoder)
        seen = PICTURE_FEATURES if self.features in ("picture", "both") or self.pictures is not None else ""
        renderer = self.drawing.renderer or (None if self.terminal or begun(self.out) else _renderer(self))
        return [
            *([] if self.terminal else [Need(one, "the pages of `edpbrl ask`", "study") for one in _PAGES]),
            *([] if renderer is None else renderer_needs(renderer, "the pictures of `edpbrl ask`")),
            *([] if spec is None else encoder_needs(spec)),
            *(need for name in seen.split("+") if seen for need in image_encoder_needs(name)),
            *([] if self.planner is None else planner_needs(self.planner)),
            *([] if self.prior is None else prior_needs(self.prior)),
        ]


def run(options: Ask) -> None:
    """Ask, then estimate the taste, write it and print or show its prompts."""
    from edpbrl_gym._places import hold_folder

    with bad_arguments():
        _check(options)
    with hold_folder(options.out):
        given = ("subject", "vocabulary", "num_options", "format", "levels", "planner", "prior", "feedback", "encoder",
                 "seed", "pictures", "pool", "features")  # fmt: skip
        chosen: dict[str, Any] = {name: getattr(options, name) for name in given}
        with bad_arguments():
            chosen |= {"renderer": options.drawing.renderer, "renderer_options": options.drawing.options() or None}
        settings = chosen_settings(options.out, chosen, None if options.terminal else _defaults(options))
        quiet_libraries()
        if options.terminal:
            from edpbrl_gym.cli.ask_in_terminal import ask_in_terminal

            ask_in_terminal(options, settings)
        else:
            from edpbrl_gym.cli.ask_in_browser import ask_in_browser

            ask_in_browser(options, settings)


def _renderer(options: Ask) -> str | None:
    """Who draws new questions in the browser; None: they are in words."""
    if options.pictures is not None:
        return f"folder:{options.pictures.expanduser().resolve()}"
    if options.drawing.renderer is None and _vocabulary(options) == _POSTERS:
        return _POSTERS
    return options.drawing.renderer


def _vocabulary(options: Ask) -> str:
    return options.vocabulary or (_POSTERS if options.subject is None else "styles")


def _defaults(options: Ask) -> dict[str, Any]:
    """The settings of new questions in the browser that are not given."""
    renderer = _renderer(options)
    costly = renderer not in (None, _POSTERS) and options.pictures is None
    # a rating teaches most for each picture drawn, and the best of four most for each tap (docs/people.md)
    format = options.format or ("rating" if costly and options.num_options in (None, 1) else AskSettings.format)
    each = format in ("rating", "like")
    return {
        "vocabulary": _vocabulary(options),
        "renderer": renderer,
        "format": format,
        "num_options": 1 if each else 9 if renderer is None else 4,
        **({"levels": 7} if format == "rating" else {}),
        **({} if options.pictures is not None else {"pool": _SLOW_POOL if costly else _POOL}),
        "features": "text" if options.pictures is None else "picture",
    }


def _check(options: Ask) -> None:
    from edpbrl_gym._validation import MOST_OPTIONS, MOST_PROMPTS, check_path
    from edpbrl_gym.estimation.priors import PRIORS
    from edpbrl_gym.features import check_encoder_spec
    from edpbrl_gym.planners.registry import takes_model

    check_path(options.vocabulary, "vocabulary")
    check_counts(options, most=MOST_PROMPTS, count=1, pool=2)
    check_counts(options, most=65535, port=0)
    check_counts(options, most=MOST_OPTIONS, num_options=1)
    check_counts(options, questions=1, seed=0)
    _check_together(options)
    if options.encoder is not None:
        check_encoder_spec(options.encoder)
    if options.planner is not None and not takes_model(options.planner):
        raise UsageError(
            f"Expected a --planner that learns from all that a person may answer, {options.planner} learns from best "
            "options only; it is for comparisons with simulated people"
        )
    if options.prior is not None and options.prior not in PRIORS:
        check_population_file(Path(options.prior))


def _check_together(options: Ask) -> None:
    """Refuse options that say nothing together."""
    of_pages = {
        "subject": options.subject,
        "--pictures": options.pictures,
        "--renderer": options.drawing.renderer,
        "--pool": options.pool,
        "--features": options.features,
    }
    given = [name for name, value in of_pages.items() if value is not None]
    if options.terminal and given:
        raise UsageError(f"Expected no {given[0]} with --terminal, where nothing is drawn; leave one of them out")
    if not options.terminal and options.feedback not in (None, "prompt"):
        raise UsageError(f"Expected --terminal with --feedback {options.feedback}; pictures are of complete prompts")
    if options.pictures is not None and given not in (["--pictures"], ["--pictures", "--features"]):
        other = next(name for name in given if name not in ("--pictures", "--features"))
        raise UsageError(f"Expected no {other} with --pictures, whose pictures exist already; leave one of them out")
    if options.pictures is not None and not options.pictures.exists():
        raise UsageError(f"Expected a folder of pictures at {options.pictures}, found none; check the path")
    if options.drawing.renderer is None and options.features in ("picture", "both") and _renderer(options) is None:
        raise UsageError(f"Expected --renderer with --features {options.features}: without one there are no pictures")
