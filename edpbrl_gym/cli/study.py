"""``edpbrl study``: ask many people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import (
    UsageError,
    bad_arguments,
    bullet,
    command,
    output,
    quiet_libraries,
    show_report,
    shown,
    track,
)

if TYPE_CHECKING:
    from edpbrl_gym.study.config import StudyConfig
    from edpbrl_gym.study.records import Participant
    from edpbrl_gym.study.store import Store

__all__ = [
    "OfParticipant",
    "OfStudy",
    "StudyCheck",
    "StudyDelete",
    "StudyExport",
    "StudyInit",
    "StudyReport",
    "find_participant",
    "open_study",
    "run",
]


STORE = ("sqlalchemy", "alembic")
PAGES = (*STORE, "starlette", "jinja2", "itsdangerous", "python_multipart")


def study_needs(*packages: str) -> list[Need]:
    """What a command on studies needs."""
    return [
        Need(package, "the answers of a study" if package in STORE else "the pages of a study") for package in packages
    ]


@dataclass(frozen=True)
class OfStudy:
    """A command on the study in a folder."""

    folder: Positional[Path]
    """Folder of the study."""

    def needs(self) -> list[Need]:
        return study_needs(*STORE)


@dataclass(frozen=True)
class OfParticipant(OfStudy):
    """A command on one participant."""

    participant: Positional[str]
    """An external identifier of the participant (such as the PROLIFIC_PID), or the pseudonym of an export; after the
    other words and -- if it begins with a hyphen."""


@dataclass(frozen=True)
class StudyInit:
    """Write a configuration that explains itself, and texts to start from."""

    folder: Positional[Path]
    """New folder of the study."""

    def needs(self) -> list[Need]:
        return []


@dataclass(frozen=True)
class StudyCheck(OfStudy):
    """Explain every mistake of a study's configuration, or say what the study will be."""

    def needs(self) -> list[Need]:
        return study_needs(*PAGES)


@dataclass(frozen=True)
class StudyExport(OfStudy):
    """Write all answers as CSV, JSON lines and parquet, without what identifies people."""

    out: Path = Path("runs/study")
    """Folder for the export."""
    identified: bool = False
    """Also write dates and times, and identities.csv with the identifiers of everybody's link."""
    pilot: bool = False
    """Write what was answered in the pilot, and nothing else."""


@dataclass(frozen=True)
class StudyDelete(OfParticipant):
    """Delete everything about one participant, on their request."""

    yes: bool = False
    """Delete; without it, only say what would be deleted."""


@dataclass(frozen=True)
class StudyReport(OfStudy):
    """Write a report: who came how far, times, care, agreement, and the arms compared."""

    out: Path = Path("runs/study-report")
    """Folder for REPORT.md and its figures."""
    pilot: bool = False
    """Report the pilot, and nothing else."""

    def needs(self) -> list[Need]:
        return [*super().needs(), Need("matplotlib", "the figures of the report")]


def run(options: Any) -> None:
    """Run the command of these options."""
    _RUNS[type(options)](options)


def _init(options: StudyInit) -> None:
    from edpbrl_gym.study.template import write_template

    folder = options.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"Expected a new or empty folder for the study, got {folder}; choose another one")
    files = write_template(folder)
    console = output()
    for path in files:
        bullet(console, "Written", shown(path))
    console.print(f"Edit them, then: {command('edpbrl', 'study', 'check', folder)}", soft_wrap=True)


def _check(options: StudyCheck) -> None:
    from edpbrl_gym.study import Mistakes
    from edpbrl_gym.study.checks import examine
    from edpbrl_gym.study.config_reading import read_config

    quiet_libraries()
    console = output()
    try:
        config = read_config(options.folder)
        plan, materials = examine(config)
    except FileNotFoundError as error:
        raise UsageError(str(error)) from None
    except Mistakes as error:
        for mistake in error.mistakes:
            bullet(console, "Mistake", mistake)
        raise UsageError(
            f"Expected a study without mistakes in {error.source}, found {len(error.mistakes)}; correct what is said "
            "above"
        ) from None
    _describe(console, config, plan, materials)


def _describe(console: Any, config: Any, plan: Any, materials: Any) -> None:
    from edpbrl_gym.reporting.statistics import plural
    from edpbrl_gym.study.arms import kind_of
    from edpbrl_gym.study.exclusions import rule_of
    from edpbrl_gym.study.forms.pages import PLACES
    from edpbrl_gym.study.wording import has_messages

    questions, practice, checks = config.questions, config.practice, config.checks
    bullet(console, "Study", config.title)
    bullet(console, "Languages", ", ".join(config.languages))
    english = [
        language for language in config.languages if not has_messages(language) and language not in config.messages
    ]
    if english:
        bullet(console, "Note", f"the pages have no buttons and headings in {', '.join(english)}; they are in English "
               "there, around your texts")  # fmt: skip
    parts = [f"{questions.number} that count"]
    parts += [f"{practice.questions} for practice"] if practice.questions else []
    parts += [f"{checks.attention} to check attention"] if checks.attention else []
    parts += [f"{checks.repeated} repeated"] if checks.repeated else []
    parts += [f"{checks.test} to compare the arms"] if checks.test else []
    bullet(console, "Questions", f"at most {plan.questions} ({', '.join(parts)})")
    for page in config.pages:
        when = f"after {page.after} choices" if page.after else PLACES[page.place]
        when = f"after every {page.every} choices" if page.every else when
        bullet(console, "Page", f"{page.name}, {when}: {plural(len(page.questions), 'question')}")
    for language, count, example in plan.untranslated:
        bullet(console, "Note", f"{count} texts have no translation in {language} and are shown as they are, such as "
               f"{example!r}; add them to translations/{language}.csv")  # fmt: skip
    if questions.stopping is not None:
        bullet(console, "Ends early", f"when sure (accuracy {questions.stopping.target:.0%}), after "
               f"{questions.stopping.minimum} answers or more")  # fmt: skip
    bullet(console, "Options", f"{questions.options} ({questions.feedback}), answered by {questions.format}")
    bullet(console, "Vocabulary", f"{questions.vocabulary}: {sum(materials.vocabulary.sizes)} tokens")
    bullet(console, "Pictures", "none, options are texts" if config.pictures is None else config.pictures.renderer)
    if plan.pictures is not None:
        known, missing = plan.pictures
        draw = f", {missing} not yet: {command('edpbrl', 'study', 'draw', config.folder)}" if missing else ", all drawn"
        bullet(console, "Drawn ahead", f"{known} pictures of questions that follow no answer{draw}")
    bullet(console, "Duration", f"about {plan.minutes:.0f} minutes for a participant")
    for arm in plan.arms:
        first = "" if arm.seconds is None else f", first question in {arm.seconds:.2f} s"
        title = kind_of(arm.arm).title(arm.arm)
        bullet(console, "Arm", f"{arm.arm.name}: {title}, {arm.share:.0%} of the participants{first}")
    bullet(console, "Consent", f"version {config.consent_version}")
    if (pay := config.recruitment.pay) is not None:
        hourly = 60 * pay.amount / plan.minutes
        bullet(console, "Pay", f"{pay.amount:.2f} {pay.currency}, {hourly:.2f} an hour at this duration")
    if rule := rule_of(config.exclusions.as_json()):
        bullet(console, "Excluded", f"{'; '.join(rule)}")
    for name, text in _recruitment(config.recruitment):
        bullet(console, name, text)
    bullet(console, "Config", f"sha256 {config.fingerprint[:16]}")
    for note in plan.notes:
        bullet(console, "Left to do", note)


def _recruitment(recruitment: Any) -> Iterator[tuple[str, str]]:
    """What `edpbrl study check` says about coming and going."""
    from edpbrl_gym.study.recruitment import OUTCOMES

    preset = recruitment.preset
    yield "Platform", f"{preset.title or 'none'}, its link ends with /?{preset.link}"
    limits = [f"{recruitment.people} people"] if recruitment.people else []
    limits += [f"{most} in {arm}" for arm, most in recruitment.arms.items()]
    if limits:
        yield "At most", f"{', '.join(limits)} who finish"
    if recruitment.opens or recruitment.closes:
        yield "Open", f"from {recruitment.opens or 'now'} until {recruitment.closes or 'you stop it'}"
    if recruitment.time_out:
        yield "Time-out", f"after {recruitment.time_out} minutes without an answer a place is free again"
    without = [name for name in OUTCOMES if name not in recruitment.codes]
    if recruitment.codes and without:
        yield "No code", f"for {', '.join(without)}"
    back = recruitment.way_back("complete", dict.fromkeys(preset.parameters, "..."))
    if back.address:
        yield "At the end", f"{'goes by itself' if recruitment.redirect else 'a button'} to {back.address}"
    if recruitment.pilot:
        yield "Pilot", "whoever comes is marked, and left out of reports and exports"


def open_study(folder: Path) -> tuple[StudyConfig, Store]:
    """The configuration and the database of a study that has begun."""
    from edpbrl_gym.study.config_reading import read_config
    from edpbrl_gym.study.store import Store

    with bad_arguments():
        config = read_config(folder)
        return config, Store(config.database_url, create=False)


def _export(options: StudyExport) -> None:
    from edpbrl_gym._places import hold_place

    config, store = open_study(options.folder)
    from edpbrl_gym.study.export import export
    from edpbrl_gym.study.materials import Materials

    quiet_libraries()
    with hold_place(options.out):
        with closing(store):
            _say_who_is_left_out(store, options.pilot)
            materials = Materials(config)
            written = export(
                store,
                materials,
                options.out,
                identified=options.identified,
                pilot=options.pilot,
                track=lambda records: track("People", records, len(records)),
            )
        console = output()
        bullet(console, "People", f"{written.participants}, {len(written.people)} of them with answers for estimates")
        bullet(console, "Answers", f"{written.answers} that count")
        bullet(console, "Written", f"{shown(options.out)}; dictionary.csv explains every column")
        if options.identified:
            bullet(console, "Identified", "the export names people: keep it as safe as the database")
        if written.people:
            console.print(f"One taste: {command('edpbrl', 'estimate', written.people[0])}", soft_wrap=True)
            kind = ("--kind", "items") if materials.crowds.has_pool else ()
            together = command("edpbrl", "fit-population", options.out / "comparisons", *kind)
            console.print(f"All: {together}", soft_wrap=True)
        console.print(f"Report: {command('edpbrl', 'report', options.out)}", soft_wrap=True)


def _report(options: StudyReport) -> None:
    import time

    from edpbrl_gym._files import check_links
    from edpbrl_gym._places import hold_place

    start = time.monotonic()
    config, store = open_study(options.folder)
    from edpbrl_gym.study.export import gather
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.reporting.report import make_report

    quiet_libraries()
    with hold_place(options.out):
        check_links(options.out, "REPORT.md", "figures")
        with closing(store):
            _say_who_is_left_out(store, options.pilot)
            tables, _ = gather(
                store,
                Materials(config),
                pilot=options.pilot,
                track=lambda records: track("People", records, len(records)),
            )
        show_report(make_report(tables), options.out, start)


def _say_who_is_left_out(store: Store, pilot: bool) -> None:
    others = sum(one.pilot != pilot for one in store.participants())
    if others:
        which = "who came to the study itself" if pilot else "of the pilot, whom --pilot takes instead"
        bullet(output(), "Left out", f"{others} {which}")


def find_participant(store: Store, identifier: str) -> Participant:
    """The participant with an external identifier, or the pseudonym of an export."""
    from edpbrl_gym.study.export_tables import pseudonym

    wanted = [
        one
        for one in store.participants()
        if identifier in (pseudonym(store.secret, one), one.code, *one.external.values())
    ]
    if len(wanted) != 1:
        raise UsageError(
            f"Expected the identifier of one participant, {identifier!r} is that of {len(wanted)}; give the one of "
            "their link (such as the PROLIFIC_PID), or the pseudonym of an export"
        )
    return wanted[0]


def _delete(options: StudyDelete) -> None:
    _, store = open_study(options.folder)
    with closing(store):
        wanted = find_participant(store, options.participant)
        answered = sum(answer is not None for _, answer in store.record(wanted.id).history)
        if not options.yes:
            raise UsageError(f"Expected --yes to delete a participant with {answered} answers for good; add it")
        store.delete(wanted.id)
    bullet(output(), "Deleted", f"a participant with {answered} answers; delete them from exports and backups too")


_RUNS: dict[type, Any] = {
    StudyInit: _init,
    StudyCheck: _check,
    StudyExport: _export,
    StudyReport: _report,
    StudyDelete: _delete,
}
