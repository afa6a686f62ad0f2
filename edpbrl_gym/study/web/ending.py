"""The pages after the questions: stopping for good, the last question, thanks."""

from __future__ import annotations

import logging

from starlette.responses import Response as Answer

from edpbrl_gym.study.style import STYLE_CHOICE
from edpbrl_gym.study.web.context import see_other
from edpbrl_gym.study.web.pictures import picture_addresses
from edpbrl_gym.study.web.views import GroupView, view_groups
from edpbrl_gym.study.web.visits import Visit

__all__ = ["ask_to_withdraw", "end", "prefer", "withdraw"]

_log = logging.getLogger(__name__)


def ask_to_withdraw(visit: Visit) -> Answer:
    """Ask whether the participant wants to stop for good."""
    return visit.page("withdraw.html")


def withdraw(visit: Visit) -> Answer:
    """The participant stops for good."""
    if visit.person.status not in ("finished", "failed"):
        visit.site.store.set_status(visit.person.id, "withdrawn")
    return see_other("/end")


def end(visit: Visit) -> Answer:
    """The last page: what was learnt, thanks and the completion code, or why there are no more questions."""
    status = visit.person.status
    if status == "finished":
        return _thanks(visit)
    if status in ("failed", "withdrawn"):
        return visit.page("ended.html", status_name=status, code=visit.person.code)
    return see_other("/question")


def _thanks(visit: Visit) -> Answer:
    site = visit.site
    try:
        style = site.queue.style(visit.person)
    except Exception as error:  # the completion code is shown all the same
        _log.error("A learnt taste could not be shown", exc_info=error)
        style = None
    groups: list[GroupView] = []
    chosen = None
    if style is not None:
        chosen = next((one["detail"]["chosen"] for one in site.store.events(visit.person.id)
                       if one["kind"] == STYLE_CHOICE), None)  # fmt: skip
        groups = view_groups(style, lambda texts: picture_addresses(site, visit.visitor, texts))
    return visit.page(
        "thanks.html",
        paragraphs=site.text("thanks", visit.language),
        code=site.config.completion_code,
        groups=groups,
        chosen=chosen,
    )


def prefer(visit: Visit) -> Answer:
    """Store the answer to the last question: which group of prompts the participant prefers."""
    style = visit.site.queue.style(visit.person)
    choice = visit.form.get("group", "")
    if style is not None and choice in ("0", "1"):
        visit.site.queue.prefer(visit.person, "learnt" if style.groups[int(choice)][0] == "learnt" else "random")
    elif style is not None and choice == "tie":
        visit.site.queue.prefer(visit.person, "tie")
    return see_other("/end")
