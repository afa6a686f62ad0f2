"""``edpbrl study report``."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.console import quiet_libraries, show_report, track
from edpbrl_gym.cli.study import STORE, open_study, study_needs

__all__ = ["StudyReport", "run"]


@dataclass(frozen=True)
class StudyReport:
    """Write a report: who came how far, times, care, agreement, and the arms compared."""

    folder: Positional[Path]
    """Folder of the study."""
    out: Path = Path("runs/study-report")
    """Folder for REPORT.md and its figures."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        return [*study_needs(*STORE), Need("matplotlib", "the figures of the report")]


def run(options: StudyReport) -> None:
    """Make the report from the database."""
    from edpbrl_gym._files import check_links
    from edpbrl_gym._places import hold_place

    start = time.monotonic()
    config, store = open_study(options.folder)
    from edpbrl_gym.study.export import gather
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.reporting.report import make_report

    quiet_libraries()
    lock = hold_place(options.out)
    check_links(options.out, "REPORT.md", "figures")
    with closing(store):
        tables, _ = gather(store, Materials(config), track=lambda records: track("People", records, len(records)))
    show_report(make_report(tables), options.out, None, start)
    del lock
