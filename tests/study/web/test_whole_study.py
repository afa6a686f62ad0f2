"""A study as a researcher runs it with people from Prolific: from init to R, with posters, quotas and a time-out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pandas
import pytest
from starlette.testclient import TestClient

from edpbrl_gym.cli import main
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.pictures import make_pictures
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.web import create_app
from tests.helpers.study_client import Person
from tests.helpers.study_server import silent

pytestmark = pytest.mark.needs("study", "text", "pictures", "experiments")

PEOPLE = int(os.environ.get("EDPBRL_TEST_PEOPLE", "6"))  # who finish, a multiple of three
RECRUITMENT = f"""[recruitment]
platform = "prolific"
redirect = true
people = {PEOPLE}
time_out = 30
pay = {{ amount = 3.00, currency = "GBP" }}

[recruitment.codes]
complete = "C0MPLETE"
screened_out = "SCREENED"
no_consent = "NOCONSENT"
quota_full = "FULL"
timed_out = "TIMEDOUT"
"""
PAGES = """
[[pages]]
name = "eyes"
place = "start"
title = "Before we start"

[[pages.questions]]
name = "sees"
kind = "choice"
text = "Do you see colours as most people do?"
choices = ["Yes", "No"]
accept = { is = "Yes" }

[[pages]]
name = "about"
place = "after"
template = "demographics"
leave_out = ["residence", "birth", "nationality", "language"]

[exclusions]
failed_checks = 1
"""
ARMS = """[[arms]]
name = "adaptive"
planner = "adaptive"

[[arms]]
name = "random"
planner = "random"

[[arms]]
name = "design"
planner = "questions"
file = "questions.csv"

"""


def edpbrl(*words):
    assert main([str(word) for word in words]) == 0, words


def written(folder):
    """The folder of `study init`, changed as a researcher changes it, with a design for the third arm."""
    edpbrl("study", "init", folder)
    path = folder / "study.toml"
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^\[recruitment\]$.*?^(?=# \[recruitment.arms\])", RECRUITMENT, text, flags=re.M | re.S)
    changes = {
        'vocabulary = "images"': 'vocabulary = "posters"',
        "number = 30": "number = 3",
        "repeated = 2": "repeated = 1",
        "test = 4": "test = 2",
        "style = 4": "style = 2",
        "# [pictures]": "[pictures]",
        '# renderer = "posters"': 'renderer = "posters"',
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    text = re.sub(r'^\[\[arms\]\]\nname = "adaptive".*?^(?=# \[\[arms\]\])', ARMS, text, count=1, flags=re.M | re.S)
    path.write_text(text.replace("\n[checks]", f"{PAGES}\n[checks]"), encoding="utf-8")
    edpbrl("design", "--vocabulary", "posters", "--feedback", "prompt", "--episodes", 3, "--out", folder / "design")
    shutil.copy(folder / "design" / "questions.csv", folder / "questions.csv")
    return folder


class Served:
    """The study behind its pages, made of what `study serve` makes it of."""

    def __init__(self, folder):
        config = read_config(folder)
        self.store = Store(config.database_url, config=config.fingerprint)
        self.pictures = make_pictures(config, config.pictures)
        self.queue = StudyQueue(config, self.store, Materials(config), pictures=self.pictures)
        self.app = create_app(self.queue)

    def close(self):
        for one in (self.queue, self.pictures, self.store):
            one.close()


class Crowd:
    """Simulated people in front of the study's pages; they like tokens, and err at times."""

    def __init__(self, server):
        self.server, self.rng = server, np.random.default_rng(0)
        tokens = server.queue.materials.vocabulary.all_tokens
        self.likes = dict(zip(tokens, np.random.default_rng(1).normal(size=len(tokens)), strict=True))

    def arrives(self, name):
        person = Person(TestClient(self.server.app, base_url="http://study.test", raise_server_exceptions=False))
        person.get("/", params={"PROLIFIC_PID": name, "STUDY_ID": "s1", "SESSION_ID": f"t-{name}"})
        return person

    def begins(self, name, *, sees=0):
        """Up to the first question, or to where the answer about colours leads."""
        person = self.arrives(name)
        person.post("/consent", agree="yes")
        person.post("/page", **{"q-sees": sees})
        if person.at == "/page":
            person.post("/page", **{"q-task": 1})
        return person

    def finishes(self, name):
        """All questions and the page after them."""
        person = self.begins(name)
        while person.at == "/question":
            if "/answer" in person.page.text:
                person.post("/answer", best=self.choice(person, name))
            else:  # its pictures are being drawn; fewer requests than the ten a second that a person may send
                time.sleep(0.12)
                person.get("/question")
        assert person.at == "/page", person.page.text
        form = person.form("/page")
        given = {
            name: values[0]
            for name, values in form["choices"].items()
            if name.startswith("q-") and not name.endswith("-not")
        }
        given["q-age"] = 20 + int(self.rng.integers(50))
        person.post("/page", **given)
        return person

    def choice(self, person, name):
        [participant] = [one for one in self.server.store.participants() if one.external["PROLIFIC_PID"] == name]
        question = self.server.store.history(participant.id)[-1][0]
        if question.kind == "attention":
            return question.expected
        worth = [sum(self.likes[token] for token in text.split(", ")) for text in question.texts]
        return int(np.argmax(worth + self.rng.gumbel(size=len(worth))))


BACK = "https://app.prolific.com/submissions/complete?cc="


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder after PEOPLE have finished; two are screened out, one falls asleep, three find it full."""
    folder = written(tmp_path_factory.mktemp("whole") / "study")
    edpbrl("study", "check", folder)
    edpbrl("study", "preregister", folder)
    edpbrl("study", "draw", folder, "--participants", 1)
    server = Served(folder)
    crowd = Crowd(server)
    try:
        for number in range(2):
            assert f"{BACK}SCREENED" in crowd.begins(f"screened-{number}", sees=1).page.text
        sleeper = crowd.begins("sleeper")
        assert sleeper.at == "/question"
        for number in range(PEOPLE - 1):
            page = crowd.finishes(f"person-{number}").page
            assert f"{BACK}C0MPLETE" in page.text and "SCREENED" not in page.text
        assert "FULL" in crowd.arrives("early").page.text  # the sleeper's place is taken
        [asleep] = [one.id for one in server.store.participants() if one.external["PROLIFIC_PID"] == "sleeper"]
        silent(server.store, asleep)
        assert f"{BACK}C0MPLETE" in crowd.finishes("successor").page.text
        for number in range(2):
            assert "FULL" in crowd.arrives(f"late-{number}").page.text
        assert "TIMEDOUT" in sleeper.get("/question").text
    finally:
        server.close()
    return folder


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    """Its export."""
    out = tmp_path_factory.mktemp("exported") / "export"
    edpbrl("study", "export", folder, "--out", out, "--identified")
    return out


def test_everybody_is_counted_where_they_ended(exported):
    people = pandas.read_csv(exported / "participants.csv")
    assert people["status"].value_counts().to_dict() == {"finished": PEOPLE, "failed": 2, "timed_out": 1}
    arms = people[people["status"] == "finished"]["arm"].value_counts()
    assert set(arms) == {PEOPLE // 3}  # blocks count people who finish
    identities = pandas.read_csv(exported / "identities.csv")
    assert "successor" in set(identities["PROLIFIC_PID"])
    ages = pandas.read_csv(exported / "pages.csv")["about.age"]
    assert ages.notna().sum() == PEOPLE and ages.dropna().between(20, 69).all()


def test_the_export_is_read_by_pandas_and_by_r(exported):
    options = pandas.read_csv(exported / "options.csv")
    counted = options[options["counts"] == 1]
    assert (counted.groupby("question")["chosen"].sum() == 1).all()
    assert counted.groupby("question").size().eq(4).all() and counted["participant"].nunique() >= PEOPLE
    pairs = pandas.read_csv(exported / "pairs.csv")
    assert (pairs["chosen"] != pairs["rejected"]).all()
    if PEOPLE < 15:
        pytest.skip("too few answers for a fit: set EDPBRL_TEST_PEOPLE to 15 or more")
    subprocess.run([sys.executable, exported / "logit.py"], check=True, capture_output=True)
    python = pandas.read_csv(next(exported.glob("logit_*.csv")))
    if shutil.which("Rscript") is None:
        pytest.skip("needs R with its package survival: apt-get install r-base-core r-cran-survival")
    subprocess.run(["Rscript", exported / "logit.R"], check=True, capture_output=True)
    found = pandas.read_csv(exported / "logit_R.csv")
    assert len(found) == len(python) and np.isfinite(found["estimate"]).all()


def test_the_report_of_the_export_says_all_of_it(exported):
    edpbrl("report", exported)
    text = (exported / "REPORT.md").read_text(encoding="utf-8")
    for said in ("GBP", "preregist", "kappa", "excluded"):
        assert said in text, said
    assert [path.name for path in (exported / "figures").glob("*flow*.png")]
