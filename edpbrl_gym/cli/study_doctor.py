"""``edpbrl study doctor``: whether a study can be served where it is, and what to do where it can't."""

from __future__ import annotations

from dataclasses import dataclass

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import check_counts
from edpbrl_gym.cli.console import UsageError, bad_arguments, bullet, output, quiet_libraries
from edpbrl_gym.cli.study import PAGES, OfStudy, study_needs
from edpbrl_gym.cli.study_serve import checked_url

__all__ = ["StudyDoctor", "run"]


@dataclass(frozen=True)
class StudyDoctor(OfStudy):
    """Look whether a study can be served where it is; each line says OK, or what needs doing."""

    port: int | None = None
    """Also look whether a server answers at this port of this machine."""
    public_url: str | None = None
    """Also look whether it answers at this address, such as https://study.example.org."""

    def needs(self) -> list[Need]:
        return study_needs(*PAGES)


def run(options: StudyDoctor) -> None:
    """Look at everything.

    Raises:
        UsageError: Something needs doing.
    """
    public = checked_url(options.public_url)
    quiet_libraries()
    from edpbrl_gym.study.doctor import look_at

    with bad_arguments():
        check_counts(options, port=1, most=65535)
    console, wrong = output(), 0
    for finding in look_at(options.folder, port=options.port, public_url=public):
        bullet(console, "OK" if finding.is_well else "Needs doing", f"{finding.what}: {finding.found}")
        if not finding.is_well:
            wrong += 1
            bullet(console, "", finding.to_do)
    if wrong:
        raise UsageError(
            f"Expected a study that can be served in {options.folder}, {wrong} things need doing; see above"
        )
