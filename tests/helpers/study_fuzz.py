"""Random requests to every page of a study.

Hypothesis draws requests: methods, addresses, parameters, headers, cookies, and forms that are right but for some
fields or bytes. People in all stages of a study send them. After each request these must hold, or it fails and prints
the request: the status is no server error; the headers of security are there; answers and events are only added;
answers, consents and withdrawals come only from posts with the participant's cookie and token from the study's own
site, and an answer is the one that was posted.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from sqlalchemy import select
from starlette.testclient import TestClient

from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.tables import answers, events, participants
from edpbrl_gym.study.web import create_app
from edpbrl_gym.study.web.site import COOKIE
from tests.helpers.study_client import Forms

SITE = "http://study.test"
PEOPLE = 5
_OWN_ACCORD = ("status", "sure", "style", "refused")  # events that no post of a participant asks for
_FIELDS = ("token", "key", "undo_key", "best", "worst", "place-0", "place-1", "cant_tell", "agree", "entry", "page",
           "language", "attempt", "shown", "q-what", "group", "first_input_ms", "answer_ms", "x")  # fmt: skip
_PARAMETERS = ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "participant", "lang", "notice", "x")

junk = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", "0", "1", "-1", "yes", "tie", "already", "' OR 1=1; --", "<script>", "\x00", "٣", "a\r\nX: 1", "../a.db"]
    ),
    st.integers().map(str),
)


@dataclass
class Attempt:
    """A request as drawn; ``describe`` in an error message.

    Attributes:
        who: Number of the person whose browser sends it; None: a browser without a cookie.
        method, path, parameters, headers: Of the request.
        cookie: Instead of the person's; None: the person's.
        form: Index of the form of the person's page that is filled in.
        elsewhere: Whether it is sent to ``path`` instead of its own address.
        changes: Fields that are set; None: left out.
        body: Instead of a form.
    """

    who: int | None
    method: str
    path: str
    parameters: dict[str, str]
    headers: dict[str, str]
    cookie: str | None
    form: int | None
    elsewhere: bool
    changes: dict[str, str | None]
    body: bytes | None


def attempts(paths: list[str]) -> st.SearchStrategy[Attempt]:
    """Requests, of which about half are a form that a person fills in, or goes back to."""
    address = st.one_of(
        st.sampled_from(paths),
        st.tuples(st.sampled_from(paths), st.text(max_size=20)).map("/".join),
        st.text(max_size=30).map(lambda text: "/" + text),
    )
    header = st.sampled_from(
        ["origin", "sec-fetch-site", "accept-language", "content-type", "x-forwarded-for", "range"]
    )
    value = st.one_of(
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
        st.sampled_from([SITE, "https://evil.example", "null", "cross-site", "same-origin", "de;q=nan", "bytes=0-1"]),
    )
    rarely = st.integers(0, 9).map(lambda number: number == 0)
    nothing = st.none()
    person = st.builds(
        Attempt,
        who=st.integers(0, PEOPLE - 1),
        method=st.just("POST"),
        path=st.sampled_from(["/undo", "/undo", "/withdraw", "/answer"]),
        parameters=st.just({}),
        headers=st.just({}),
        cookie=nothing,
        form=st.just(0),
        elsewhere=rarely,
        changes=st.fixed_dictionaries(
            {
                "agree": st.just("yes"),
                "q-what": st.just("1"),
                "best": st.sampled_from(["0", "1", "2", "3"]),
                "worst": st.sampled_from(["0", "1"]),
                "place-0": st.sampled_from(["", "1", "2"]),
                "place-1": st.sampled_from(["1", "2"]),
            },
            optional={"token": st.sampled_from([None, "wrong"]), "key": st.sampled_from([None, "wrong"])},
        ),
        body=nothing,
    )
    anybody = st.builds(
        Attempt,
        who=st.one_of(st.integers(0, PEOPLE - 1), st.integers(0, PEOPLE - 1), st.none()),
        method=st.sampled_from(["GET", "GET", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"]),
        path=address,
        parameters=st.dictionaries(st.one_of(st.sampled_from(_PARAMETERS), st.text(max_size=8)), junk, max_size=3),
        headers=rarely.flatmap(lambda odd: st.dictionaries(header, value, max_size=2) if odd else st.just({})),
        cookie=rarely.flatmap(lambda odd: st.text(st.characters(max_codepoint=255), max_size=60) if odd else st.none()),
        form=st.one_of(st.integers(0, 3), st.integers(0, 3), st.none()),
        elsewhere=rarely,
        changes=st.one_of(
            st.just({"best": "1"}),
            st.just({"agree": "yes", "q-what": "1"}),
            st.dictionaries(
                st.one_of(st.sampled_from(_FIELDS), st.text(max_size=8)), st.one_of(st.none(), junk), max_size=4
            ),
        ),
        body=rarely.flatmap(lambda odd: st.binary(max_size=200) if odd else st.none()),
    )
    return st.one_of(person, anybody)


@dataclass
class _Person:
    """A browser: its cookie, and the forms of the page that it shows."""

    client: TestClient
    forms: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.forms = [(form["action"], form["fields"]) for form in Forms(text).forms] or self.forms


class _Target:
    """A study with people in it, and what its database holds."""

    def __init__(self, config: StudyConfig, materials: Materials, folder: Path) -> None:
        self.config = config
        self.store = Store(f"sqlite:///{folder / f'fuzz{time.monotonic_ns()}.db'}", config=config.fingerprint)
        self.queue = StudyQueue(config, self.store, materials)
        self.app = create_app(self.queue, hosts=("study.test",), admin_token="a secret of the researchers")
        self.paths = _addresses(self.app)
        self.people = [self.newcomer() for _ in range(PEOPLE)]
        self.seen: Counter[str] = Counter()

    def newcomer(self) -> _Person:
        """Somebody who reads the first page."""
        person = _Person(TestClient(self.app, base_url=SITE, follow_redirects=False))
        person.note(person.client.get("/").text)
        return person

    def close(self) -> None:
        self.queue.close()
        self.store.close()

    def state(self) -> dict[str, list[dict[str, Any]]]:
        with self.store.database.reading() as connection:
            return {
                table.name: [dict(row) for row in connection.execute(select(table).order_by(table.c.id)).mappings()]
                for table in (participants, answers, events)
            }

    def serve(self, attempt: Attempt) -> None:
        """Send a request and check what it has done."""
        person = self.people[attempt.who] if attempt.who is not None else self.newcomer()
        method, path, fields, content = attempt.method, attempt.path, {}, attempt.body
        if attempt.form is not None and person.forms and attempt.method == "POST":
            own, hidden = person.forms[attempt.form % len(person.forms)]
            path, fields = path if attempt.elsewhere else own, dict(hidden)
        for name, value in attempt.changes.items():
            fields.pop(name, None) if value is None else fields.update({name: value})
        if content is None and method == "POST":
            content = urlencode(fields, errors="surrogatepass").encode()
        headers = {"content-type": "application/x-www-form-urlencoded", **attempt.headers}
        if attempt.cookie is not None:
            headers["cookie"] = f"{COOKIE}={attempt.cookie}"
        tokens = {hidden.get("token", "none") for _, hidden in person.forms}
        before = self.state()
        url = f"{SITE}{quote(path)}?{urlencode(attempt.parameters)}"
        sent = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = person.client.request(method, url, headers=sent, content=content)
        self.seen[f"{answer.status_code}"] += 1
        assert answer.status_code < 500, (answer.status_code, answer.text)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        genuine = method == "POST" and attempt.body is None and attempt.cookie is None and _is_own(attempt.headers)
        genuine = genuine and fields.get("token") in tokens
        self._check(before, self.state(), genuine, path, fields)
        if answer.status_code == 303 and attempt.cookie is None:
            answer = person.client.get(answer.headers["location"])
            while answer.status_code == 303:
                answer = person.client.get(answer.headers["location"])
        if answer.status_code == 200 and "text/html" in answer.headers.get("content-type", ""):
            person.note(answer.text)
        if attempt.who is not None and ("/withdraw" == path or not person.forms):
            self.people[attempt.who] = self.newcomer()

    def _check(self, before: Any, after: Any, genuine: bool, path: str, fields: dict[str, str]) -> None:
        added = after["answers"][len(before["answers"]) :]
        assert after["answers"][: len(before["answers"])] == before["answers"], "an answer has changed"
        assert after["events"][: len(before["events"])] == before["events"], "an event has changed"
        happened = [one for one in after["events"][len(before["events"]) :] if one["kind"] not in _OWN_ACCORD]
        people = len(after["participants"]) - len(before["participants"])
        if not genuine:
            assert not added and not happened and not people, (added, happened, people)
        for known, now in zip(before["participants"], after["participants"], strict=False):
            same = known.keys() - {"status", "consented_at", "consent_version", "place"}
            assert {name: known[name] for name in same} == {name: now[name] for name in same}
            assert now["place"] == (None if now["status"] in ("withdrawn", "failed") else known["place"])
            if now["status"] != known["status"]:
                posted = {"withdrawn": "/withdraw", "failed": "/page"}.get(now["status"], path)
                assert posted == path and (genuine or now["status"] in ("asking", "finished")), (known, now)
        assert people <= (path == "/consent" and fields.get("agree") == "yes")
        assert len(added) <= (path == "/answer")
        for one in added:
            self.seen["answers"] += 1
            assert one["key"] == fields["key"]
            assert one["response"]["kind"] == "tie" if "cant_tell" in fields else _says(one["response"], fields)


def _says(response: dict[str, Any], fields: dict[str, str]) -> bool:
    """Whether a stored answer is what the fields of a form say."""
    kind, order = response["kind"], list(response["order"])
    if kind == "best":
        return order == [int(fields["best"])]
    if kind == "best_worst":
        return order == [int(fields["best"]), int(fields["worst"])]
    return order == sorted(order, key=lambda option: int(fields[f"place-{option}"]))


def _is_own(headers: dict[str, str]) -> bool:
    return headers.get("sec-fetch-site") not in ("cross-site", "same-site") and headers.get("origin", SITE) == SITE


def _addresses(app: Any) -> list[str]:
    """The addresses of all routes of an application."""
    while not hasattr(app, "routes"):
        app = app.app
    found = [route.path for route in app.routes]
    assert "/answer" in found
    return [path.replace("{name}", "style-0").replace("{option}", "0") or "/" for path in found]


def fuzz(
    config: StudyConfig, materials: Materials, folder: Path, *, examples: int, number: int = 0, shrink: bool = True
) -> Counter[str]:
    """Send random requests to a new study.

    Args:
        config, materials: Of the study.
        folder: For its database.
        examples: Number of requests.
        number: Seed.
        shrink: Whether a simpler request is looked for when one fails.

    Returns:
        How often each status occurred, and the number of answers that were stored.
    """
    target = _Target(config, materials, folder)
    try:

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=tuple(Phase) if shrink else (Phase.generate,),
        )
        @given(attempts(target.paths))
        def one(attempt: Attempt) -> None:
            target.serve(attempt)

        one()
    finally:
        target.close()
    return target.seen
