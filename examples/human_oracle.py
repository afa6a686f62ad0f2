"""A person answers the loop
=========================

A person answers the questions of an environment's loop, through a study; the same command goes on where it stopped.

On the command line::

    python examples/human_oracle.py                    # a simulated person answers, in a thread
    python examples/human_oracle.py --folder my-study  # a participant of this study, which is served meanwhile
"""
# sphinx_gallery_thumbnail_path = "study-dark.png"

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import tyro

import edpbrl_gym as eg
from edpbrl_gym.collection import collect, make_prompt_lanes
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study import AnswerTimeoutError, HumanOracle, read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import NotReadyError
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.template import write_template

STUDY = """
title = "Which prompts do you like?"
[consent]
version = "1"
[questions]
vocabulary = "interiors"
feedback = "truncated"
options = 4
number = 60
[[arms]]
name = "loop"
planner = "oracle"
"""


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    folder: Path | None = None
    """folder of the study, made if it is not there; without it a simulated person answers, and nothing is kept"""
    user: str = "a warm rustic kitchen"
    """what the simulated person likes"""
    agent: str = "adaptive"
    """agent that chooses the actions"""
    episodes: int = 3
    """episodes of six questions"""
    timeout: float = 600.0
    """seconds to wait for an answer"""
    seed: int = 0
    """seed of the agent: the same one goes on with a loop that was stopped"""


# %%
# A simulated participant, who calls the queue as the pages of a study do.
def take_part(folder: Path, user: str) -> None:
    """Answer as a person who likes one thing; the pages of a study call the queue in the same way."""
    config = read_config(folder)
    store, materials = Store(config.database_url, config=config.fingerprint), Materials(config)
    taste = eg.SyntheticUser.from_text(user, materials.encoder, mode="argmax").theta
    queue = StudyQueue(config, store, materials)
    person = queue.consent(queue.enrol({"PROLIFIC_PID": "simulated"}))
    while True:
        try:
            question = queue.next_question(person)
        except NotReadyError:  # a page would load again in a second
            time.sleep(0.05)
            continue
        if question is None:
            break
        best = int((materials.encoder.encode(question.texts) @ taste).argmax())
        queue.answer(person, question.key, Response.best(best if question.expected is None else question.expected))
    print(f"The person is at the last page: {store.participant(person.code).status}")
    queue.close()
    store.close()


# %%
# The loop of an environment: the same as with any other oracle.
def ask(folder: Path, args: Args) -> None:
    """Let the environment's loop ask, and show what was learnt."""
    lanes = make_prompt_lanes(4, vocabulary="interiors")
    with HumanOracle(folder, name="example", cant_tell="skip", timeout=args.timeout, poll=0.1) as oracle:
        agent = eg.make_agent(args.agent, lanes, num_options=4, episodes=args.episodes, seed=args.seed).learn()
        try:
            answers = collect(lanes, agent, oracle, episodes=args.episodes, seed=args.seed, observe=True, distinct=True)
        except AnswerTimeoutError as error:
            print(error)
            return
        oracle.finish()
    result = eg.estimate(answers)
    last = answers.texts[-1] if answers.texts else "none"
    print(f"{len(answers)} answers by {answers.metadata['oracle']['participant']}; last: {last}")
    print(f"estimate converged: {result.converged}, norm of theta {float((result.theta**2).sum() ** 0.5):.3f}")


# %%
# Both at once, or the loop alone.
def main(args: Args) -> None:
    """Ask a simulated person, or the participant of a study that is served elsewhere."""
    if args.folder is not None:
        if not args.folder.exists():
            write_template(args.folder)
            (args.folder / "study.toml").write_text(STUDY, encoding="utf-8")
            print(f"Written: {args.folder}. Serve it to participants, who answer while this command waits.")
        ask(args.folder, args)
        return
    with TemporaryDirectory() as place:
        folder = Path(place) / "study"
        write_template(folder)
        (folder / "study.toml").write_text(STUDY, encoding="utf-8")
        person = threading.Thread(target=take_part, args=[folder, args.user], daemon=True)
        person.start()
        ask(folder, args)
        person.join()


# %%
# Run it, with the simulated participant.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
