"""``edpbrl study draw``: the pictures of a study, before anybody waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Budget, check_counts, say_what_is_drawn
from edpbrl_gym.cli.console import Stopped, UsageError, bad_arguments, counting, output, quiet_libraries
from edpbrl_gym.cli.study import PAGES, OfStudy, study_needs

__all__ = ["StudyDraw", "run"]


@dataclass(frozen=True)
class StudyDraw(OfStudy):
    """Draw ahead what a study will show whatever people answer; what is drawn already is not drawn again."""

    participants: int | None = None
    """Draw the practice, checks and random questions of so many participants (None: of one block of the arms). Fixed
    questions, test questions and pools are the same for all."""
    workers: int = 1
    """Draw in so many processes; each needs the memory of the renderer, and a GPU of its own if it takes one."""
    budget: OmitArgPrefixes[Budget] = field(default_factory=Budget)

    def needs(self) -> list[Need]:
        return study_needs(*PAGES)


def run(options: StudyDraw) -> None:
    """Draw the pictures.

    Raises:
        Stopped: After Ctrl-C; what was drawn is kept.
        RenderingError: Some pictures could not be drawn; all others are.
    """
    from edpbrl_gym.study.ahead import known_options
    from edpbrl_gym.study.config_reading import read_config
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.pictures import study_renderer
    from edpbrl_gym.workers import LocalProcesses

    quiet_libraries()
    with bad_arguments():
        check_counts(options, participants=1, workers=1)
        config = read_config(options.folder)
        if config.pictures is None:
            raise UsageError(f"Expected a table [pictures] in the study in {options.folder}, whose options are texts")
        workers = LocalProcesses(options.workers) if options.workers > 1 else None
        renderer = study_renderer(config, config.pictures, budget=options.budget.budget_pictures, executor=workers)
        if workers is not None:
            renderer.batch_size = min(renderer.batch_size, 4)  # so that all have something to do
        texts = known_options(Materials(config), options.participants)
    with renderer:
        seed = config.pictures.seed
        say_what_is_drawn(renderer, texts, seed)
        try:
            with counting("draw") as progress:
                images, error = renderer.render_some(texts, seed=seed, progress=progress)
        except KeyboardInterrupt:
            raise Stopped("stopped by you; what was drawn is kept, and the same command draws the rest") from None
    drawn = [image for image in images if image is not None]
    console = output()
    console.print(f"Drawn: {len(drawn)} of {len(texts)} pictures, {sum(one.flagged for one in drawn)} of them flagged")
    if renderer.spent:
        console.print(f"Cost: {renderer.spent:g}")
    if error is not None:
        raise error
