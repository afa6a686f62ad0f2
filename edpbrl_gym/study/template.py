"""The files that `edpbrl study init` writes: a configuration that explains itself, and texts to start from."""

from __future__ import annotations

from pathlib import Path

from edpbrl_gym._places import write_atomically
from edpbrl_gym.study.config import CONFIG

__all__ = ["write_template"]

_CONFIG = """# The configuration of a study. `edpbrl study check FOLDER` explains every mistake in it.
# A line that begins with # is a comment; a value that is commented out is the default.

title = "Which pictures do you like?"

# Languages offered to participants; the first is used where a browser asks for none of them. Each needs its texts:
# texts/consent.en.txt, texts/instructions.en.txt, texts/thanks.en.txt. Buttons and headings are there in English,
# German ("de"), Chinese ("zh") and Arabic ("ar"); in other languages they are in English.
languages = ["en"]

# Decides arms, orders, practice, checks and the planners' draws; another seed gives another study.
seed = 0

# Shown at the end, for the platform that sent the participants.
completion_code = ""

# Where answers are stored: a file study.db beside this one, or PostgreSQL (extra `postgresql`) for several servers:
# database = "postgresql://user@host/name"


[consent]
# Stored with every consent. Change it whenever the text changes.
version = "1"


[questions]
# A built-in vocabulary (images, interiors), or a folder of token files, one for each step of a prompt.
vocabulary = "images"
# encoder = "minilm"

# What the options are: "prompt" (complete prompts), "truncated" (prompts that grow by a token) or "state" (tokens).
feedback = "prompt"

# How a question is answered: "best", "best_worst", "ranking" (all options) or "partial" (the best few, in order).
format = "best"

# Options of a question: four texts are read in ten seconds; of pictures, nine can be compared (2 to 12; without this
# line 4, or 9 with a renderer).
options = 4

# Questions of a participant, without practice, attention checks and repeated questions.
number = 30

# Whether "can't tell" is an answer, and whether the last answer can be taken back.
# cant_tell = true
# undo = true

# Without this table everyone answers all questions. With it the questions end as soon as the predicted accuracy on new
# pairs of prompts reaches `accuracy`, or `lookahead` more questions are predicted to add less than `gain`, but not
# before `minimum` answers.
# [questions.stop_when_sure]
# accuracy = 0.9
# gain = 0.01
# lookahead = 30
# minimum = 24


[practice]
# Practice questions, whose answers are stored but never used.
questions = 1

# Questions about the instructions. Whoever does not answer all of them correctly in so many attempts is thanked and
# takes no part. Take them out for a study without this check.
attempts = 2

[[practice.comprehension]]
text = "What do we ask you to choose?"
choices = ["The picture that most people would like", "The picture that I like best", "The longest description"]
correct = 2


[checks]
# Attention checks, which say which option to choose, and questions that are asked a second time, later and in another
# order. Test questions are drawn at random once, and everybody is asked them: by them the report compares the arms, and
# says how much people agree. All are spread over the questions by the seed, test questions over the second half; their
# answers are never used for estimates.
attention = 1
repeated = 2
test = 4


# The arms are the methods that the study compares; participants are assigned to them in blocks of random order, in
# which each arm occurs `weight` times. A study with one arm compares nothing. Planners: adaptive, random, those that
# `edpbrl bench` lists, "questions" for the fixed questions of a file of `edpbrl design`, or "oracle" for the questions
# of a loop of your own with an environment, which asks through edpbrl_gym.study.HumanOracle.
[[arms]]
name = "adaptive"
planner = "adaptive"
weight = 1
# prior = "population.safetensors"     # of `edpbrl fit-population`

[[arms]]
name = "random"
planner = "random"

# [[arms]]
# name = "design"
# planner = "questions"
# file = "questions.csv"

# [[arms]]
# name = "loop"
# planner = "oracle"


[thanks]
# The last page shows so many prompts of the learnt taste beside as many random ones, without saying which are which,
# and asks which group the participant prefers; 0: it does not.
style = 4


# Without this table options are shown as text. Pictures need a text-to-image model, a hub id or a folder.
# [renderer]
# model = "stabilityai/sd-turbo"
# size = 512
# steps = 25
# seed = 0
# guidance = 7.5                        # 0 for models that are made for few steps
# dtype = "float32"                     # float16 or bfloat16 on a GPU
"""

_TEXTS = {
    "consent": """\
You are invited to take part in a study about what people like.

You will be shown several descriptions of pictures at a time, and asked which of them you like best. There are no right
or wrong answers.

Taking part is voluntary. You can stop at any time by closing this page, without giving a reason. We store your answers,
how long you took for them, and the identifier that brought you here, but neither your name nor your network address. On
request we delete everything that you answered.

(Write here who runs the study, who approved it, how long answers are kept, how people are paid, and whom to ask.)
""",
    "instructions": """\
In each question you see several descriptions of pictures. Imagine the pictures, and choose the one that you like
best: your own taste counts, not what others might like.

If you cannot tell, say so. Now and then we ask a question twice, or ask you to choose a certain option.
""",
    "thanks": """\
Thank you for taking part. Your answers are stored.
""",
}


def write_template(folder: Path) -> list[Path]:
    """Write study.toml and the texts to a folder.

    Returns:
        The files, study.toml first.

    Raises:
        FileExistsError: The folder has one of them already; nothing is written.
    """
    texts = {folder / "texts" / f"{name}.en.txt": text for name, text in _TEXTS.items()}
    files = {folder / CONFIG: _CONFIG, **texts}
    there = [path for path in files if path.exists()]
    if there:
        raise FileExistsError(f"Expected a new folder for the study, found {there[0]} already; choose another folder")
    (folder / "texts").mkdir(parents=True, exist_ok=True)
    for path, content in reversed(files.items()):  # the configuration last: with it the folder is a study
        write_atomically(path, lambda part, content=content: part.write_text(content, encoding="utf-8"))  # type: ignore[misc]
    return list(files)
