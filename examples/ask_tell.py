"""Ask and tell
============

A session with a simulated user, or with you at the keyboard; saved, and resumed by the same command.

On the command line::

    python examples/ask_tell.py                               # a simulated user
    python examples/ask_tell.py --person --folder my-session  # you: 1 to 4, s to skip, u to undo, q to stop
"""
# sphinx_gallery_thumbnail_path = "ask-light.png"

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

import edpbrl_gym as eg
from edpbrl_gym.session import answer_of


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    planner: Literal["adaptive", "random"] = "adaptive"
    """who chooses the questions"""
    person: bool = False
    """ask you instead of a simulated user"""
    user: str = "a cosy winter cabin"
    """what the simulated user likes"""
    mistake_rate: float = 0.05
    """share of the simulated user's answers that are mistakes"""
    questions: int = 60
    """maximum number of questions of this run; it stops earlier when it is sure"""
    target: float = 0.85
    """predicted accuracy at which it is sure"""
    folder: Path | None = None
    """where to save every answer; a folder with a session is resumed"""
    tokens_per_step: int | None = 50
    """size of the vocabulary"""
    lanes: int = 4
    """options K of a question"""
    feedback: Literal["truncated", "state", "prompt"] = "truncated"
    """compare partial prompts, single tokens or complete prompts"""
    seed: int = 0
    """seed of the questions and of the simulated user"""


# %%
# A session has a planner, which chooses the questions; it is made, or resumed from its folder.
def start(args: Args) -> eg.Session:
    """Start a session, or resume the one in the folder."""
    words = eg.load_vocabulary()
    if args.tokens_per_step is not None:
        words = words.subset(args.tokens_per_step, seed=0)
    encoder = eg.load_encoder("minilm")
    # the adaptive planner never repeats an option in a question; the random one may, for simulated users
    options: dict[str, Any] = {"distinct": args.person} if args.planner == "random" else {}
    planner = eg.make_planner(args.planner, words, encoder, num_options=args.lanes, seed=args.seed, **options)
    rule = eg.StoppingRule(target=args.target)
    if args.folder is not None and args.folder.exists():
        return eg.Session.resume(args.folder, planner, vocabulary=words, encoder=encoder, stopping=rule)
    return eg.Session(
        planner,
        vocabulary=words,
        encoder=encoder,
        num_options=args.lanes,
        feedback=args.feedback,
        stopping=rule,
        seed=args.seed,
        who="you" if args.person else "simulated",
        folder=args.folder,
    )


# %%
# One question to the person at the keyboard.
def ask_person(session: eg.Session) -> bool:
    """Ask the person at the keyboard the next question; False when they want to stop."""
    question = session.ask()
    print(f"\nQuestion {question.number + 1}: which do you like best?")
    for number, text in enumerate(question.texts, start=1):
        print(f"  {number}  {text}")
    session.think()  # while you read
    while True:
        try:
            typed = input(f"1-{question.num_options}, s(kip), u(ndo), q(uit): ").strip().lower()
        except EOFError:
            return False
        if typed == "q":
            return False
        if typed == "u" and session.answered:
            session.undo()
            return True
        if typed == "s":
            session.skip()
            return True
        if typed.isdecimal() and 1 <= int(typed) <= question.num_options:
            session.tell(int(typed) - 1)
            return True


# %%
# Ask until it is sure, then print what was learnt.
def main(args: Args) -> None:
    """Ask until the session is sure or out of questions, then print the taste."""
    with start(args) as session:
        user = eg.ImperfectUser.from_text(
            args.user, session.maker.encoder, mistake_rate=args.mistake_rate, seed=args.seed
        )
        print(f"{session.answered} questions answered before")
        for number in range(args.questions):
            if number and number % 12 == 0:
                progress = session.progress()
                print(f"after {session.answered} questions: {progress.reason}")
                if progress.should_stop:
                    break
            if not args.person:
                session.tell(answer_of(user, session.ask()))
            elif not ask_person(session):
                break
        if not session.estimate.theta.any():
            print("nothing learnt yet")
            return
        progress = session.progress()
        num_more = progress.questions_to(args.target)
        print(f"\n{session.answered} questions, predicted accuracy {progress.accuracy:.1%}")
        print(
            f"{args.target:.0%} needs " + ("more than 240 more" if num_more is None else f"about {num_more:.0f} more")
        )
        print("prompts to your taste, with 90% credible intervals of their utility:")
        for prompt in session.recommend(5):
            print(f"  {prompt.score:6.2f}  [{prompt.low:6.2f}, {prompt.high:6.2f}]  {prompt.text}")


# %%
# The simulated user answers.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
