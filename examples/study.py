"""A web study, from init to report
================================

A whole study with simulated people: init, design, check, serve, answers over HTTP, export, report.

On the command line::

    python examples/study.py --folder my-pilot
"""
# sphinx_gallery_thumbnail_path = "study-light.png"

import html
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path

import numpy as np
import tyro

import edpbrl_gym as eg
from edpbrl_gym.features import TextEncoder

ARMS = """
[[arms]]
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

TASTES = [
    "an old map of an island, ink on yellowed paper",
    "neon lights of a city at night in the rain",
    "a quiet watercolour of a garden in spring",
    "a storm over the sea, dramatic and dark",
    "a child's drawing of animals in bright colours",
    "black and white photograph of a street in the fifties",
]


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    folder: Path = Path("runs/example-study")
    """new folder of the study"""
    people: int = 12
    """simulated participants, assigned to three arms"""
    questions: int = 12
    """questions of each that count"""
    scale: float = 20.0
    """how decided their answers are: the larger, the fewer mistakes"""
    port: int = 8765
    """port of the server"""
    seed: int = 0
    """seed of the study and of the people"""


# %%
# The study's folder, by the commands that a researcher types.
def edpbrl(*arguments: str | Path) -> None:
    """Run a command and show it."""
    print("$ edpbrl", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "edpbrl_gym.cli", *map(str, arguments)], check=True)


def prepare(args: Args) -> None:
    """Write a study with three arms."""
    edpbrl("study", "init", args.folder)
    config = args.folder / "study.toml"
    text = config.read_text(encoding="utf-8")
    text = re.sub(r"^seed = 0$", f"seed = {args.seed}", text, flags=re.M)
    text = re.sub(r"^number = 30$", f"number = {args.questions}", text, flags=re.M)
    before, _, after = text.partition('[[arms]]\nname = "adaptive"')
    config.write_text(before + ARMS.lstrip() + after[after.index("# [[arms]]") :], encoding="utf-8")
    design = args.folder / "design"
    edpbrl("design", "--feedback", "prompt", "--episodes", str(args.questions), "--out", design)
    (args.folder / "questions.csv").write_bytes((design / "questions.csv").read_bytes())
    edpbrl("study", "check", args.folder)


def prompt_in(page: str) -> str:
    """The prompt in a part of a page: its tokens, with the commas that screen readers hear."""
    return html.unescape(re.sub(r"<[^>]*>", "", page[page.index('<span class="title">') :])).strip()


# %%
# A simulated participant: requests over HTTP, as a browser sends them.
class Participant:
    """A simulated person with a browser that knows no JavaScript."""

    def __init__(self, number: int, address: str, args: Args, encoder: TextEncoder) -> None:
        self.number, self.address, self.scale, self.encoder = number, address, args.scale, encoder
        self.rng = np.random.default_rng([args.seed, number])
        likes, dislikes = encoder.encode(TASTES)[self.rng.permutation(len(TASTES))[:2]]
        self.theta = likes - dislikes
        self.page = self.path = ""
        self.browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def open(self, path: str, **fields: str) -> None:
        """Get a page, or post the fields of its form together with those given."""
        data = None
        if fields:
            hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.page))
            data = urllib.parse.urlencode({**hidden, **fields}).encode()
        with self.browser.open(self.address + path, data) as answer:
            self.page, self.path = answer.read().decode(), urllib.parse.urlsplit(answer.url).path

    def choose(self) -> str:
        """The option that the person likes best, by a multinomial logit; attention checks are passed."""
        options = re.findall(r'name="best" value="(\d+)" required>(.*?)</label>', self.page, flags=re.S)
        check = re.search(r"reading, choose option (\w)", self.page)
        if check:
            return next(str(value) for value, body in options if f">{check[1]}</span>" in body)
        utility = self.scale * self.encoder.encode([prompt_in(body) for _, body in options]) @ self.theta
        return str(options[int(np.argmax(utility + self.rng.gumbel(size=len(utility))))][0])

    def take_part(self) -> int:
        """Take part from the link to the thank-you page; return the number of answers."""
        self.open(f"/?PROLIFIC_PID=simulated-{self.number}")
        self.open("/consent", agree="yes")
        self.open("/page", **{"q-task": "1"})
        answers = 0
        while self.path == "/question":
            self.open("/answer", best=self.choose())
            answers += 1
        assert self.path == "/end", self.path
        while "data-pending" in self.page:  # the last question is being made from the answers
            time.sleep(1.0)
            self.open("/end")
        self.open("/prefer", group=self.prefer())
        return answers

    def prefer(self) -> str:
        """The group of prompts with the larger mean utility."""
        groups = re.findall(r'<ul class="prompts">(.*?)</ul>', self.page, flags=re.S)
        means = []
        for group in groups:
            prompts = [prompt_in(item) for item in re.findall(r"<li>(.*?)</li>", group, flags=re.S)]
            means.append(float(np.mean(self.encoder.encode(prompts) @ self.theta)))
        return str(int(np.argmax(means)))


# %%
# Serve, let everybody take part, export, report.
def serve(args: Args, address: str) -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = ["-m", "edpbrl_gym.cli", "study", "serve", str(args.folder), "--port", str(args.port)]
    print("$ edpbrl", *command[2:], flush=True)
    server = subprocess.Popen([sys.executable, *command], env=environment)
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/health").close()
            return server
        except OSError:
            time.sleep(0.2)
    raise SystemExit("The server has stopped; its message is above.")


def main(args: Args) -> None:
    """Run the study."""
    begin = time.perf_counter()
    prepare(args)
    address = f"http://127.0.0.1:{args.port}"
    server = serve(args, address)
    try:
        encoder = eg.load_encoder("minilm")
        people = [Participant(number, address, args, encoder) for number in range(args.people)]
        with ThreadPoolExecutor(4) as pool:  # four at a time
            answers = sum(pool.map(Participant.take_part, people))
    finally:
        server.terminate()
        server.wait()
    print(f"{args.people} people gave {answers} answers.")
    edpbrl("study", "export", args.folder, "--out", args.folder / "export")
    edpbrl("study", "report", args.folder, "--out", args.folder / "report")
    print(f"From init to report in {time.perf_counter() - begin:.0f} s.")


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args))
