"""The platforms that send people to a study: what their links carry, and where people go at the end."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_PLATFORM", "PLATFORMS", "Platform", "parameters_of"]

NO_PLATFORM = "none"


@dataclass(frozen=True)
class Platform:
    """A platform; a new one is a row of ``PLATFORMS``.

    Attributes:
        title: Its name as people know it.
        link: The end of the study's link, as researchers give it to the platform.
        people: Names of the link's parameters that say who somebody is; without the first one nobody takes part.
        visits: Names of those that are new whenever somebody comes again, so that they tell no two people apart.
        back: Address to which people go back, with names in braces: ``code``, parameters of the link, ``settings``.
        settings: Keys of ``[recruitment]`` that the address needs.
        needs_code: Whether nobody is paid without a completion code, wherever people go back to.
        unaccepted: A parameter and the value by which the platform shows a task that nobody has accepted yet.
    """

    title: str
    link: str
    people: tuple[str, ...]
    visits: tuple[str, ...] = ()
    back: str = ""
    settings: tuple[str, ...] = ()
    needs_code: bool = False
    unaccepted: tuple[str, str] | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the link's parameters, who it is first."""
        return (*self.people, *self.visits)


PLATFORMS = {
    "prolific": Platform(
        title="Prolific",
        link="PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}",
        people=("PROLIFIC_PID", "STUDY_ID"),
        visits=("SESSION_ID",),
        back="https://app.prolific.com/submissions/complete?cc={code}",
        needs_code=True,
    ),
    "mturk": Platform(
        title="Mechanical Turk",
        link="workerId=...&assignmentId=...&hitId=...",
        people=("workerId",),
        visits=("assignmentId", "hitId"),
        needs_code=True,
        unaccepted=("assignmentId", "ASSIGNMENT_ID_NOT_AVAILABLE"),
    ),
    "cloudresearch": Platform(
        title="CloudResearch Connect",
        link="participantId=...&assignmentId=...&projectId=...",
        people=("participantId",),
        visits=("assignmentId", "projectId"),
        back="https://connect.cloudresearch.com/participant/project/{projectId}/complete",
    ),
    "sona": Platform(
        title="Sona",
        link="id=%SURVEY_CODE%",
        people=("id",),
        back="https://{school}.sona-systems.com/webstudy_credit.aspx"
        "?experiment_id={experiment_id}&credit_token={credit_token}&survey_code={id}",
        settings=("school", "experiment_id", "credit_token"),
    ),
    # links that people write, and panels, which name them freely: those of all others are known too
    NO_PLATFORM: Platform(title="", link="participant=...", people=("participant", "survey_code", "id", "pid", "rid")),
}


def parameters_of(platform: str) -> tuple[str, ...]:
    """The names of the parameters that a study of a platform reads from its link; without one those of all."""
    wanted = PLATFORMS.values() if platform == NO_PLATFORM else [PLATFORMS[platform]]
    return tuple(dict.fromkeys(name for one in wanted for name in one.parameters))
