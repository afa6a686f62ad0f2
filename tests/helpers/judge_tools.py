"""What the tests of the judge share: the local server of the examples, questions, pictures."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path

import numpy as np

from edpbrl_gym._log import decode
from edpbrl_gym.oracles.judge import JudgeQuestion, JudgeSettings

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "local_judge.py"
STYLE = "noir, rain at night"
WORDS = ["a sunny beach", "a dark alley", "a bowl of fruit", "a spaceship", "an old castle", "neon signs", "a forest"]


def load_local_judge():
    """The module of the example, loaded once."""
    if "local_judge" not in sys.modules:
        spec = importlib.util.spec_from_file_location("local_judge", EXAMPLE)
        module = importlib.util.module_from_spec(spec)
        sys.modules["local_judge"] = module
        spec.loader.exec_module(module)
    return sys.modules["local_judge"]


def lines(path, kind):
    """The whole lines of one kind in a ledger, open or not; a torn last line is none."""
    found = [decode(line[:-1]) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [line for line in found if line["kind"] == kind]


class WordEncoder:
    """A quick text encoder: a seeded direction for every word, summed."""

    name, dimension, fingerprint = "words", 16, "words"

    def encode(self, texts, *, progress=False):
        rows = []
        for text in texts:
            words = text.replace(",", "").split()
            rows.append(sum(np.random.default_rng(list(word.encode())).normal(size=self.dimension) for word in words))
        rows = np.array(rows, dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def local_judge(**options):
    """A server that is quick to start."""
    return load_local_judge().LocalJudge(encoder=options.pop("encoder", WordEncoder()), **options)


def settings(server, **options):
    """Settings for text questions to a server, with short waits."""
    given = {"model": "local", "style": STYLE, "base_url": server.base_url, "show": "texts", "timeout": 20.0}
    return JudgeSettings(**{**given, **options})


def questions(number, options=4, start=0):
    """Different questions of ``options`` texts."""
    rng = np.random.default_rng(start)
    return [
        JudgeQuestion(
            texts=[f"{WORDS[w]}, number {start + i}" for w in rng.permutation(len(WORDS))[:options]],
            identity=f"q/{start + i}",
        )
        for i in range(number)
    ]


def png(colour, size=(12, 10), kind="PNG"):
    """A picture of one colour."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, format=kind)
    return stream.getvalue()
