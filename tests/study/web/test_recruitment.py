"""Coming and going: each platform's whole way from the link to the code, who is let in, the pilot, the preview link."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pandas
import pytest
from starlette.testclient import TestClient

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.export import export, gather
from edpbrl_gym.study.platforms import PLATFORMS
from edpbrl_gym.study.web import create_app
from edpbrl_gym.study.web.preview import preview_address
from tests.helpers.oracle_studies import Server
from tests.helpers.studies import SMALL, UNDERSTOOD
from tests.helpers.study_client import Person
from tests.helpers.study_server import dump, silent

CODES = """[recruitment.codes]
complete = "DONE&1"
screened_out = "OUT1"
no_consent = "NO1"
quota_full = "FULL1"
timed_out = "LATE1"
"""
SHORT = SMALL[: SMALL.index("[recruitment.codes]")] + SMALL[SMALL.index("[consent]") :]
SHORT = (
    SHORT[: SHORT.index("[[arms]]")].replace("number = 6", "number = 2").replace("\nquestions = 1", "\nquestions = 0")
)
SHORT = SHORT.replace("attention = 1", "attention = 0").replace("repeated = 2", "repeated = 0")
SHORT += '[thanks]\nstyle = 0\n[[arms]]\nname = "one"\nplanner = "random"\n[[arms]]\nname = "two"\nplanner = "random"\n'
SHORT += UNDERSTOOD
PROLIFIC = 'platform = "prolific"\n'


def recruiting(text, rest=SHORT, codes=CODES):
    return f"{rest.replace('[consent]', f'[recruitment]{chr(10)}{text}{codes}[consent]', 1)}"


def arrive(served, name="p1", **external):
    person = served.person()
    person.get("/", params=external or {"PROLIFIC_PID": name, "STUDY_ID": "s", "SESSION_ID": f"t-{name}"})
    return person


def begin(served, name="p1", **external):
    """Somebody at the first question."""
    person = arrive(served, name, **external)
    person.post("/consent", agree="yes")
    person.post("/page", **{"q-what": 1})
    assert person.at == "/question", person.page.text
    return person


def button(person):
    """Where the first button of a page goes that leads out of the study; None: there is none."""
    found = re.findall(r'href="(https://[^"]+)"', person.page.text)
    return html.unescape(found[0]) if found else None


def code(person):
    found = re.findall(r"<code>([^<]*)</code>", person.page.text)
    return html.unescape(found[0]) if found else None


def restarted(served, text):
    """The study behind another server, with another configuration."""
    (served.config.folder / "study.toml").write_text(text, encoding="utf-8")
    server = Server(served.config.folder)
    return server, create_app(server.queue)


def at(app, person):
    """The same browser in front of another server."""
    client = TestClient(app, base_url="http://study.test", raise_server_exceptions=False)
    client.cookies.update(person.client.cookies)
    other = Person(client)
    other.page = person.page
    return other


PROLIFIC_BACK = "https://app.prolific.com/submissions/complete?cc="
WAYS = {
    "prolific": (
        "",
        {"PROLIFIC_PID": "5f3", "STUDY_ID": "60a", "SESSION_ID": "61b"},
        {"complete": f"{PROLIFIC_BACK}DONE%261", "screened_out": f"{PROLIFIC_BACK}OUT1",
         "no_consent": f"{PROLIFIC_BACK}NO1", "quota_full": f"{PROLIFIC_BACK}FULL1"},
    ),
    "mturk": ("", {"workerId": "A2", "assignmentId": "3T", "hitId": "37"}, {}),
    "cloudresearch": (
        "",
        {"participantId": "C1", "assignmentId": "a", "projectId": "pr/1"},
        {"complete": "https://connect.cloudresearch.com/participant/project/pr%2F1/complete"},
    ),
    "sona": (
        'school = "uni"\nexperiment_id = "12"\ncredit_token = "ab"\n',
        {"id": "4711"},
        {"complete": "https://uni.sona-systems.com/webstudy_credit.aspx"
         "?experiment_id=12&credit_token=ab&survey_code=4711"},
    ),
    "none": ("", {"participant": "x y"}, {}),
}  # fmt: skip


def test_every_platform_is_played():
    assert set(WAYS) == set(PLATFORMS)


@pytest.mark.parametrize("platform", WAYS)
def test_the_whole_way_from_the_link_to_the_code(serve, platform):
    settings, external, back = WAYS[platform]
    served = serve(recruiting(f'platform = "{platform}"\npeople = 1\n{settings}'))
    person = arrive(served, **external)
    seen = [person.page.text]
    person.post("/consent", agree="yes")
    seen.append(person.page.text)
    person.post("/page", **{"q-what": 1})
    while person.at == "/question":
        seen.append(person.page.text)
        assert person.get("/end").url.path == "/question"
        person.post("/answer", best=0)
    assert len(seen) == 4 and not any("DONE" in text for text in seen)
    assert person.at == "/end" and code(person) == "DONE&1" and button(person) == back.get("complete")
    [participant] = served.store.participants()
    assert participant.external == external and participant.status == "finished"
    again = arrive(served, **external)  # from another browser
    again.post("/consent", agree="yes")
    assert again.at == "/end" and code(again) == "DONE&1"
    other = {name: value + "2" for name, value in external.items()}
    full = arrive(served, **other)
    assert "All places are taken" in full.page.text and code(full) == "FULL1" and "<form" not in full.page.text
    assert button(full) == back.get("quota_full") and len(served.store.participants()) == 1


@pytest.mark.parametrize("platform", WAYS)
def test_who_is_screened_out_or_does_not_consent_gets_a_code_of_their_own(serve, platform):
    settings, external, back = WAYS[platform]
    served = serve(recruiting(f'platform = "{platform}"\n{settings}'))
    before = dump(served.store)
    person = arrive(served, **external)
    person.post("/consent", to="/decline")
    assert person.page.status_code == 200 and "You do not take part" in person.page.text
    assert code(person) == "NO1" and button(person) == back.get("no_consent") and dump(served.store) == before
    person.get("/", params=external)
    person.post("/consent", agree="yes")
    for _ in range(2):
        person.post("/page", **{"q-what": 0})
    assert person.at == "/end" and code(person) == "OUT1" and button(person) == back.get("screened_out")
    other = begin(served, **{name: f"{value}2" for name, value in external.items()})
    other.get("/withdraw")
    other.post("/withdraw")
    assert other.at == "/end" and code(other) == "NO1" and "DONE" not in other.page.text


def test_a_link_of_a_platform_must_say_who_somebody_is(serve, caplog):
    served = serve(recruiting(PROLIFIC))
    for query in ("", "workerId=A1", "STUDY_ID=s", "participant=7"):
        page = served.person().get(f"/?{query}")
        assert page.status_code == 400 and "under the name PROLIFIC_PID" in page.text and "<form" not in page.text
    assert served.store.participants() == [] and "Expected an identifier as PROLIFIC_PID" in caplog.text


def test_an_address_of_ones_own_carries_code_and_identifiers(serve):
    own = 'completion_url = "https://panel.example.org/end?who={rid}&code={code}"\nredirect = true\n'
    served = serve(recruiting(own))
    person = begin(served, rid="a/b")
    person.play()
    address = "https://panel.example.org/end?who=a%2Fb&code=DONE%261"
    assert button(person) == address and "data-leave>" in person.page.text
    refresh = f'<noscript><meta http-equiv="refresh" content="0; url={html.escape(address)}"></noscript>'
    assert refresh in person.page.text  # without JavaScript
    anonymous = begin(served, lang="en")
    anonymous.play()
    assert code(anonymous) == "DONE&1" and button(anonymous) is None and "refresh" not in anonymous.page.text


def test_the_redirect_waits_for_the_last_question(serve, gate):
    served = serve(recruiting(PROLIFIC + "redirect = true\n", SHORT.replace("style = 0", "style = 2")))
    person = begin(served)
    person.play()
    assert person.at == "/end" and "data-pending" in person.page.text and "data-leave" not in person.page.text
    gate.set()
    person.wait_for_style()
    assert "Group A" in person.page.text and "data-leave" not in person.page.text and button(person)
    person.post("/prefer", group="tie")
    assert "data-leave" in person.page.text and button(person).endswith("DONE%261")


def test_nobody_is_let_in_before_and_after_and_who_has_begun_may_finish(serve):
    hour, now = timedelta(hours=1), datetime.now(UTC)
    served = serve(recruiting(f"{PROLIFIC}opens = {(now + hour).isoformat()}\n"))
    early = arrive(served)
    assert f"{now + hour:%Y-%m-%d %H:%M} UTC" in early.page.text and "<form" not in early.page.text
    assert code(early) is None and button(early) is None and served.store.participants() == []
    server, app = restarted(served, recruiting(PROLIFIC))
    served.app = app
    person, reading = begin(served), arrive(served, "p2")
    person.post("/answer", best=0)
    server.close()
    closed, app = restarted(served, recruiting(f"{PROLIFIC}closes = {(now - hour).isoformat()}\n"))
    served.app = app
    reading = at(app, reading)
    reading.post("/consent", agree="yes")  # the text was opened before
    for late in (reading, arrive(served, "p3")):
        assert "This study has ended" in late.page.text and code(late) == "FULL1"
    person = at(app, person)
    person.get("/?PROLIFIC_PID=p1&STUDY_ID=s&SESSION_ID=again")
    assert person.at == "/question" and person.play() == 1
    assert person.at == "/end" and code(person) == "DONE&1" and len(closed.store.participants()) == 1
    closed.close()


def test_who_reads_the_text_while_the_last_place_is_taken_is_told_so(serve):
    served = serve(recruiting(PROLIFIC + "[recruitment.arms]\none = 1\ntwo = 1\n"))
    begin(served, "p1")
    readers = [arrive(served, name) for name in ("p2", "p3")]
    for reader in readers:
        reader.post("/consent", agree="yes")
    assert readers[0].at == "/page" and "All places are taken" in readers[1].page.text
    assert {one.arm for one in served.store.participants()} == {"one", "two"}


def test_people_who_agree_at_once_get_the_last_place_once(serve):
    served = serve(recruiting(PROLIFIC + "people = 2\n"))
    begin(served, "p0")
    readers = [arrive(served, f"p{number}") for number in range(1, 7)]
    with ThreadPoolExecutor(6) as pool:
        pages = list(pool.map(lambda reader: reader.post("/consent", agree="yes"), readers))
    assert sorted("All places are taken" in page.text for page in pages) == [False, *[True] * 5]
    assert [page.status_code for page in pages] == [200] * 6 and len(served.store.participants()) == 2


def test_the_place_of_who_is_silent_for_long_goes_to_the_next_person(serve):
    served = serve(recruiting(PROLIFIC + "people = 2\ntime_out = 30\n"))
    person = begin(served, "p1")
    person.post("/answer", best=0)
    person.get("/question")
    begin(served, "p2")
    assert "All places are taken" in arrive(served, "p3").page.text
    first = served.store.participants()[0]
    silent(served.store, first.id)
    heir = begin(served, "p3")
    third = served.store.participants()[2]
    assert (third.place, third.arm) == (first.place, first.arm)
    person.post("/answer", best=0)
    assert person.at == "/end" and code(person) == "LATE1" and button(person) == f"{PROLIFIC_BACK}LATE1"
    assert "DONE" not in person.page.text and len(served.store.history(first.id)) == 2
    assert served.store.history(first.id)[1][1] is None  # too late
    heir.play()
    assert code(heir) == "DONE&1"
    assert [one.status for one in served.store.participants()] == ["timed_out", "asking", "finished"]


def test_who_was_about_to_finish_when_the_server_was_killed_has_finished(serve):
    served = serve(recruiting(PROLIFIC + "time_out = 30\n"))
    person = begin(served)
    person.post("/answer", best=0)
    [participant] = served.store.participants()
    served.queue.next_question(participant)
    served.queue.close()  # nothing is prepared any more
    key = served.store.history(participant.id)[-1][0].key
    served.store.answer(participant.id, key, Response.best(0))
    assert served.store.participant(participant.code).status == "asking"
    server = Server(served.config)
    server.queue.close()  # waits for its threads
    assert server.store.participant(participant.code).status == "finished"
    server.store.close()


def test_the_pilot_is_marked_and_left_out_unless_it_is_asked_for(serve):
    served = serve(recruiting(PROLIFIC + "people = 1\npilot = true\n"))
    person = begin(served, "p1")
    person.play()
    real, app = restarted(served, recruiting(PROLIFIC + "people = 1\n"))
    served.app = app
    other = begin(served, "p2")  # the pilot has taken no place of the study
    other.post("/answer", best=0)
    assert [(one.pilot, one.place) for one in real.store.participants()] == [(True, 0), (False, 0)]
    for pilot, status in ((False, "asking"), (True, "finished")):
        tables, people = gather(real.store, real.queue.materials, pilot=pilot, identified=True)
        assert [(row["status"], row["pilot"]) for row in tables.participants] == [(status, pilot)]
        assert {row["participant"] for row in (*tables.answers, *tables.events)} == set(people)
        assert tables.study["pilot"] == pilot and [row["PROLIFIC_PID"] for row in tables.identities] == [
            "p1" if pilot else "p2"
        ]
    real.close()


def test_the_preview_link_shows_everything_and_stores_nothing(serve):
    served = serve(recruiting(PROLIFIC + "people = 1\ncloses = 2020-01-01T00:00:00Z\n"), languages=("de",))
    before = dump(served.store)
    link = preview_address(served.store.secret)
    seen = []
    looking = served.person()
    for _ in range(2):  # again: another person
        looking.get(link)
        assert "nothing is stored" in looking.page.text
        looking.post("/consent", agree="yes")
        looking.post("/page", **{"q-what": 1})
        assert looking.at == "/question" and looking.play() == 2
        assert "nothing is stored" in looking.page.text and code(looking) == "DONE&1"
        seen.append(looking.client.cookies["edpbrl_study_preview"])
    assert seen[0] != seen[1] and dump(served.store) == before and "edpbrl_study" not in looking.client.cookies
    looking.get("/?PROLIFIC_PID=p1&STUDY_ID=s&SESSION_ID=t")  # the study's own link is no preview, in the same browser
    assert "This study has ended" in looking.page.text and "nothing is stored" not in looking.page.text
    assert served.person().get(link[:-1] + "x").status_code == served.person().get("/preview/").status_code == 404
    assert served.person(cookies={"edpbrl_preview": "x"}).get("/?participant=preview-1").status_code == 400


def test_a_preview_and_a_participant_in_one_browser_do_not_touch_each_other(serve):
    served = serve(recruiting(""))
    person = begin(served, id="p1")
    before = dump(served.store)
    person.get(preview_address(served.store.secret))
    person.post("/consent", agree="yes")
    person.post("/page", **{"q-what": 1})
    person.play()
    assert person.at == "/end" and dump(served.store) == before
    person.get("/?id=p1")  # the study's own link
    assert "edpbrl_preview" not in person.client.cookies
    assert person.at == "/question" and person.play() == 2
    assert [one.status for one in served.store.participants()] == ["finished"]
    person.get(preview_address(served.store.secret))
    person.get("/?id=p2")  # another person at the same browser
    person.post("/consent", agree="yes")
    assert person.at == "/page" and len(served.store.participants()) == 2


SCREEN = """
[[pages]]
name = "screen"
place = "start"
title = "First"
[[pages.questions]]
name = "age"
kind = "number"
text = "Age?"
least = 0
most = 120
accept = { at_least = 18 }
"""
LAST = """
[[pages]]
name = "load"
place = "between"
after = 1
title = "Effort"
[[pages.questions]]
name = "hard"
kind = "scale"
text = "Hard?"
[[pages]]
name = "end"
place = "after"
title = "End"
[[pages.questions]]
name = "fun"
kind = "scale"
text = "Fun?"
"""


def test_who_is_screened_out_by_a_page_gets_that_code_and_frees_the_place(serve):
    served = serve(recruiting(PROLIFIC + "people = 1\n", SHORT + SCREEN))
    person, late = arrive(served), arrive(served, "p2")
    person.post("/consent", agree="yes")
    assert person.at == "/page" and "All places are taken" in arrive(served, "p3").page.text
    person.post("/page", **{"q-age": 17})
    assert person.at == "/end" and "people with other answers" in person.page.text
    assert code(person) == "OUT1" and button(person) == f"{PROLIFIC_BACK}OUT1" and "DONE" not in person.page.text
    late.post("/consent", agree="yes")
    late.post("/page", **{"q-age": 18})
    late.post("/page", **{"q-what": 1})
    late.play()
    assert late.at == "/end" and code(late) == "DONE&1"
    assert [(one.status, one.place) for one in served.store.participants()] == [("failed", None), ("finished", 0)]


def test_code_and_redirect_wait_for_the_last_page_and_a_page_left_alone_frees_the_place(serve, tmp_path):
    served = serve(recruiting(PROLIFIC + "people = 1\nredirect = true\ntime_out = 30\n", SHORT + LAST))
    gone = begin(served)
    gone.play()
    assert gone.at == "/page" and "Hard?" in gone.page.text
    silent(served.store, served.store.participants()[0].id, 29)
    assert "All places are taken" in arrive(served, "p2").page.text
    silent(served.store, served.store.participants()[0].id)
    person = begin(served, "p2")
    gone.post("/page", **{"q-hard": 0})
    assert gone.at == "/end" and code(gone) == "LATE1" and button(gone) == f"{PROLIFIC_BACK}LATE1"
    person.play()
    second = served.store.participants()[1]
    silent(served.store, second.id)
    person.client.post("/page", data={"page": "load", "shown": "hard", "q-hard": "0", "token": served.token(person)})
    assert served.store.participant(second.code).status == "timed_out"  # what comes too late is not stored
    person = begin(served, "p3")
    person.play()
    person.post("/page", **{"q-hard": 0})
    person.play()
    third = served.store.participants()[2]
    assert third.status == "finished" and person.at == "/page"
    silent(served.store, third.id)
    for address in ("/end", "/question", "/page", "/?PROLIFIC_PID=p3&STUDY_ID=s&SESSION_ID=t"):
        assert person.get(address).url.path == "/page"  # who has made all choices keeps the place
        assert not re.search("DONE|data-leave|prolific.com", person.page.text)
    assert "All places are taken" in arrive(served, "p4").page.text
    person.post("/page", **{"q-fun": 0})
    assert person.at == "/end" and code(person) == "DONE&1" and "data-leave" in person.page.text
    names = ["timed_out", "timed_out", "finished"]
    assert [one.status for one in served.store.participants()] == names
    export(served.store, served.queue.materials, tmp_path / "out", identified=True)
    rows = pandas.read_csv(tmp_path / "out" / "pages.csv")
    who = pandas.read_csv(tmp_path / "out" / "identities.csv").merge(rows, on="participant")
    assert sorted(who.PROLIFIC_PID) == ["p1", "p2", "p3"]
    for column in ("load.hard", "end.fun"):
        assert who.PROLIFIC_PID[who[column].notna()].tolist() == ["p3"]
    export(served.store, served.queue.materials, tmp_path / "pilot", pilot=True)
    assert pandas.read_csv(tmp_path / "pilot" / "pages.csv").empty


def test_who_has_made_all_choices_may_still_withdraw_before_the_last_page_and_not_after_it(serve):
    served = serve(recruiting(PROLIFIC + "people = 1\n", SHORT + LAST))
    person = begin(served)
    person.play()
    person.post("/page", **{"q-hard": 0})
    person.play()
    assert person.at == "/page" and served.store.participants()[0].status == "finished"
    person.get("/withdraw")
    person.post("/withdraw")
    assert person.at == "/end" and served.store.participants()[0].status == "withdrawn"
    other = begin(served, "p2")  # the place is free
    other.play()
    other.post("/page", **{"q-hard": 0})
    other.play()
    other.post("/page", **{"q-fun": 0})
    other.client.post("/withdraw", data={"token": served.token(other)})
    assert served.store.participants()[1].status == "finished" and code(other) == "DONE&1"
