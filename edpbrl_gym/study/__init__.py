"""The web study: many people answer, in arms that are compared, and no answer is lost.

A study is a folder: ``study.toml``, ``texts/NAME.LANGUAGE.txt``, token files, priors. ``read_config`` reads it or lists
all its mistakes; ``checks.examine`` then loads everything and lets every arm ask its first question. Two fingerprints:
that of all that is asked or shown is stored with every answer; that of what decides the questions must not change while
a study runs.

The database is the truth: a participant's planner and session (``visits``) are rebuilt from the stored answers, so a
server may be killed at any time, and several may serve one study. Questions are rows that are only added; an answer
belongs to a row, whose random key is the form's idempotency key, so a repeated post finds the first answer. Undo adds a
row too: it strikes the answered question and the one after it, and adds a copy with a new key. A question that counts
is told to the session; practice, attention checks, repeats and test questions (the same for everybody) are not.

Who comes, and what they take back, is ``recruitment`` with the ``platforms``; ``quotas`` gives the places, whose blocks
decide the arms, and takes them back. ``web/preview`` shows the study to its researcher, with a database of its own.

From a request to an answer: ``web/`` (the pages, which alone import the web framework and hold no state) calls
``queue``, which asks ``schedule`` for the question of a slot and calls ``store`` (with ``rows``, ``tables``,
``records`` and ``database``). Every post is answered by a redirect, works without JavaScript, and carries the token of
its visitor. What differs between arms only their kinds know (``arms``). In an arm with the planner "oracle" the
questions that count come from another process: a ``HumanOracle`` posts each as a row (``posts``) and polls for its
answer; the two share nothing but the database, so both can be killed.
Other questions are on pages (``forms``): what is answered on one is an event, and whether one is due follows from the
events and the number of answers alone. Texts are Markdown (``prose``), in the languages of ``wording``.
Where an arm starts people from others, ``crowds`` notes who has finished, and fits what they said about the pool.
``style`` makes the last question, the learnt taste beside random prompts, in a thread of its own.
``planning`` says in which process questions that follow answers are chosen.

While it runs: ``watching`` reads the log and tells the ``alerts``, ``overview`` is the state on one screen, ``doctor``
looks whether a study can be served, ``logs`` writes lines of JSON.

The report (``reporting/``) is made of the tables of an export (``export_tables``), whether they come from the database
or from a folder: both give the same page. ``audit`` makes a session once more and says what differs.
"""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "config": ("Arm", "StudyConfig"),
        "config_reading": ("Mistakes", "read_config"),
        "human_oracle": ("HumanOracle",),
        "records": ("AnswerTimeoutError", "LoopError"),
    },
)
