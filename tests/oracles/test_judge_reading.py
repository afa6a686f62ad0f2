"""What a reply of a judge says: thoughts are no answer, and a label is read where it is beyond doubt, else not."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edpbrl_gym.oracles.judge.labels import read_answer
from edpbrl_gym.oracles.judge.reading import answer_part

SAYS_B = '{"preference": "B"}'
SAYS_A = '{"preference": "A"}'

BEYOND_DOUBT = [
    SAYS_B, '\n {"preference":"B"} ', '{"preference": "b"}', '{"Preference": "B"}', '{"preference": " B. "}',
    '{"preference": "B: a dark alley"}', '{"preference": "Candidate B"}', '{"preference": "B) a dark alley"}',
    '{"preference": ["B"]}', '{"answer": "B"}', '{"preference": "B", "reason": "It is dark and it rains."}',
    '{"confidence": 0.9, "preference": "B"}', SAYS_B + SAYS_B, f"{SAYS_B}\n{SAYS_B}", f"[{SAYS_B}]", f"{SAYS_B}.",
    f"```json\n{SAYS_B}\n```", f"```json {SAYS_B}```", json.dumps(SAYS_B), json.dumps({"preference": SAYS_B}),
    "{'preference': 'B'}", "{preference: B}", '{"preference": "B",}', '{"preference": B}', '"preference": "B"',
    "preference: B", '{"name": "preference", "arguments": {"preference": "B"}}',
    json.dumps({"name": "f", "arguments": SAYS_B}), f"<tool_call>\n{SAYS_B}\n</tool_call>", "b", "B", "B.", "[B]",
    '"B"', "`B`", "*B*", "**B**", "# B", "B!", "```\nB\n```", "B: a dark alley, number 3", "B - a dark alley",
    "**B**: a dark alley", "b: a dark alley", "Answer: B", "Answer: **B**", "Answer: Option B", "The answer is B.",
    "Option B", "Final answer: B", "### Final Answer\nB", "So I pick candidate B.", "Answer: B - a dark alley",
    "\\boxed{B}", "$\\boxed{\\text{B}}$", "<answer>B</answer>", f"<answer>\n{SAYS_B}\n</answer>",
    "(B)", "__B__", "<|begin_of_box|>B<|end_of_box|>", f"{SAYS_B}<|im_end|>", f"{SAYS_B}<|END_RESPONSE|>",
    f"{SAYS_B}<|return|>", "B</s>", "B<end_of_turn>", f"The best one is:\n```json\n{SAYS_B}\n```",
    f"Sure! Here is my answer:\n{SAYS_B}",
    f"{SAYS_B}\n\nCandidate A is a sunny beach, which does not fit. The alley is dark.",
    "B\n\nBecause the alley is dark.", f"{SAYS_B}\n\nThe alley is dark; candidate A is not.",
    f"The beach is bright. The alley is dark and wet.\n\nSo the best candidate is:\n{SAYS_B}", f"assistant\n\n{SAYS_B}",
    f"Based on the style guidance, here is my choice in the requested JSON format:\n{SAYS_B}",
    "The beach is bright.\n\nAnswer: B",
]  # fmt: skip

IN_DOUBT = [
    "", " ", "E", "Z", '{"preference": "E"}', "Answer: E", '{"preference": "AB"}', '{"preference": ""}',
    '{"preference": 1}', '{"preference": null}', '{"preference": true}', '{"preference": ["A", "B"]}',
    '{"preference": {"label": "B"}}', '{"preference": "A", "preference": "B"}',
    '{"preference": "A", "Preference": "B"}',
    f"{SAYS_A} or {SAYS_B}", f"{SAYS_A}\n{SAYS_B}", '{"answer": {"preference": "A"}}', '["A", "B"]', "A or B", "A, B",
    "A/B", "A and B", "A\nB", "A: a beach\nB: an alley", "A - B", "B?", "Is it B?", "not B", "Not B.", "Answer: not B",
    "B is wrong", "B is not the best", '{"preference": "not B"}', '{"preference": "A or B"}', "A bear would be better.",
    "A dark alley", "Answer: A bear", "The answer is a", "the answer is a dark alley", '{"preference": "A bear"}',
    '{"preference": "a dark alley"}', "I", "I can't help with that.", "I cannot decide between A and B.",
    "None", "none",
    '{"preference": "none"}', '{"worst": "B"}', '{"A": 0.1, "B": 0.9}', '{"preference": "B", "second": "A"}',
    '{"preference": "B", "reason": "A is better"}', '{"preference": "B", "ranking": ["A", "B"]}',
    '{"preference": "', '{"preference": "A"', '{"preference": "<label>"}', "<label>", f"Between {{these}}: {SAYS_A}",
    "{" * 100_000, "[" * 100_000, '{"preference": "\u0391"}', '{"preference": "\u0131"}', "\u0391", "Answer != B",
    f"{SAYS_A} would be wrong.", f"{SAYS_A} is what a careless judge says; I say B.", f"Not {SAYS_A}",
    f"Not:\n{SAYS_A}",
    f"{SAYS_A}\nWait, that is wrong.", f"{SAYS_A}\n\nHmm. B is better.", f"{SAYS_A}\nNo.", f"{SAYS_A}\nNot A.",
    f"An example of the form:\n{SAYS_A}", f"If the client liked beaches:\n{SAYS_A}", f"I prefer A.\n{SAYS_B}",
    f"The form is {SAYS_A}\n", f"It should not be\n{SAYS_A}", f"{SAYS_A}\nunless the client likes rain.",
    f"{SAYS_A}\n\nFinal answer: B", f"Answer: B\n{SAYS_A}", "A: 3/10", "If forced: B", "Probably B", "B or not",
    f"Okay, the task is to choose the text that fits the style, and the form of my answer has to be one object, so:\n"
    f"{SAYS_A}\nLet me look at each of them.", "A\nis bright.\nB\nis dark.", "A. M.", "<div>B</div>",
    f"Thinking: candidate A:\n{SAYS_A}", f"< think >Let me see:\n{SAYS_A}", f"<think>{SAYS_B}</thinking>{SAYS_B}",
    f"<unused94>thought\n{SAYS_A}", f"&lt;think&gt;Candidate A:\n{SAYS_A}", "B\u200b or A", "\u0412",
    f"{SAYS_A}\n\nThe alley is better.", f"{SAYS_A}\n\nThe second one.",
    "<|im_start|>think\nhm\n<|im_start|>answer\nB", '{"name": "f", "arguments": {"x": "B"}}',
]  # fmt: skip


# replies with the label that they mean in the end, None for none; a wrong one is never read
MISLEADING = [
    ('{"preference": "A"}\nThat was the answer of the previous judge. Mine is B.', "B"),
    ('The previous judge said:\n{"preference": "A"}\n', None), ('Previous answer: {"preference": "A"}', None),
    ('User said {"preference": "A"}', None), ('{"preference": "A"}\n(This is only an illustration.)', None),
    ('{"preference": "A"}\n\nOn the other hand, the second one is darker, and I go with that one.', None),
    ('{"preference": "A"}\nOh, I misread. Second one.', None),
    ('{"preference": "A"}\n\nEdit: {"preference": "B"}', "B"), ('{"preference": "A"} \u2192 {"preference": "B"}', "B"),
    ('~~{"preference": "A"}~~ {"preference": "B"}', "B"), ("~~A~~\nB", "B"), ('~~{"preference": "A"}~~', None),
    ("~~A~~", None), ("A \u274c", None), ("A: \u274c\nB: \u2705", "B"), ("A \u2717", None), ("B \u2713", "B"),
    ("A: no", None), ("A: No.", None), ("A: bad fit", None), ("A: fails the style", None), ("A: 2", None),
    ("A: 0.1", None), ("A. Too bright for this style.", None), ('{"preference": "A"}\n\nThe client hates it.', None),
    ('A\n\nIt is the opposite of the style.', None), ("Answer: A is out", None), ("Option A: excluded", None),
    ("Answer: A (rejected)", None), ("A. Rejected", None), ("A: false", None), ("A: true", "A"),
    ('{"preference": "A", "valid": false}', None), ('{"preference": "A", "reason": "too bright"}', None),
    ('{"preference": "A", "note": "not final"}', None), ('{"preference": "A", "final": "B"}', "B"),
    ('{"preference": "A", "error": "I could not see the images"}', None), ('{"preference": "A"} // placeholder', None),
    ('{"preference": "A"}\n# replace A by your label', None), ("The answer is: A is bright, B is dark, so B", "B"),
    ("Answer: A/B", None), ("Answer: A B", None), ("A B C D", None), ("Answer = A + B", None), ("Answers: A", "A"),
    ("A > B", "A"), ("A < B", "B"), ("B > A > C > D", "B"), ("A, then B", "A"), ("1. A\n2. B", "A"), ("1. B", "B"),
    ("A\n\n---\n\nB", "B"), ("A\n\nFinal: B", "B"), ("Draft: A\nFinal: B", "B"),
    ("First impression: A\nAnswer: B", "B"), ("First impression: A", None), ("Worst: A", None),
    ("Second best: A", None), ("Rejected: A", None), ("Not choosing A", None), ("Avoid: A", None),
    ("Answer: anything but A", None), ("Answer: no A", None), ("Answer: A?", None), ("A??", None), ("A...", "A"),
    ("A or", None), ("A vs B", None), ("Wrong answer: A", None), ("Opposite choice: A", None),
    ("Correct answer: A", "A"), ("The wrong option is A", None), ("The best is not A", None), ("Is the answer A", None),
    ("is A the best", None), ("My pick is A - just kidding, B", "B"), ("A. Just kidding, B.", "B"), ("A (or B)", None),
    ("A (B is close)", "A"), ("A / close to B", None), ("A. B.", None), ("A.B", None),
    ('Q: example\nA: {"preference": "A"}', None), ('e.g. {"preference": "A"}', None),
    ('Schema: {"preference": "A"}', None), ('Never\n{"preference": "A"}', None),
    ('Somebody might say {"preference": "A"}', None), ('The client expects {"preference": "A"}', None),
    ('Rejected: {"preference": "A"}', None), ('Wrong: {"preference": "A"}', None), ('Assume {"preference": "A"}', None),
    ('Option 1:\n{"preference": "A"}', None), ('Candidate A:\n{"preference": "A"}', None),
    ('{"preference": "A"}\n\nis incorrect', None), ('{"preference": "A"}\nis too bright.', None),
    ('{"preference": "A"}\nfor the first reader, other label for the second', None),
    ('{"preference": "A"}\nIgnore the above.', None), ('{"preference": "A"}\n\nStrike that: the alley.', None),
    ('{"preference": "A"}\n\nApologies, I meant the second candidate.', None),
    ('{"preference": "A"}\n\nLet me reconsider.', None), ('{"preference": "A"}\n\nI changed my mind.', None),
    ('{"preference": "A"}\n\nRevised answer follows.', None), ('{"preference": "A"}\n\nThis was a test.', None),
    ('{"preference": "A"}\nTo be clear, I chose at random.', "A"), ("I", None), ("a", "A"), ("A: a", None),
    ("a: b", None), ("A b", None), ("I choose A over B", "A"), ("I choose between A", None), ("Preference: A < B", "B"),
    ("preference: B over A", "B"), ("B over A", "B"), ("Preference order: A", "A"),
    ("<answer>A</answer><answer>B</answer>", None), ("<answer>A</answer>\n<final>B</final>", "B"),
    ("<answer>not A</answer>", None), ("\\boxed{A} \\boxed{B}", None), ("\\boxed{A}\n\nB", None),
    ("\\boxed{not A}", None), ("\\boxed{A, B}", None), ("```\nA\n```\n```\nB\n```", None), ('"A" "B"', None),
    ("'A'?", None), ("**A** or **B**", None), ("A*", "A"), ("-A", None), ("- A", "A"), ("\u2022 A", "A"),
    ("* A\n* B", None), ("| A |", "A"), ("A |", "A"), ("!A", None), ("\xacA", None), ("\u2260 A", None), ("/A", None),
    ("A\\B", None), ("#A", "A"), ("@A", "A"), ("$A", "A"), ("A=0", None), ("A=1, B=0", "A"), ("A:B", None),
    ("A->B", "B"), ("A \u2192 B", "B"), ("Label: A is the label of the beach.", None),
    ("Candidate A. It is a beach.", None), ("Image A: a beach", None), ("Image A", "A"),
    ("Candidate A: a sunny beach", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), MISLEADING)
def test_a_misleading_reply_is_read_as_it_is_meant_or_not_at_all(text, meant):
    assert read_answer(text, 4) in (None if meant is None else "ABCD".index(meant), None)


@pytest.mark.parametrize("text", BEYOND_DOUBT)
def test_a_label_that_is_beyond_doubt_is_read(text):
    assert read_answer(text, 4) == 1


@pytest.mark.parametrize("text", IN_DOUBT)
def test_a_label_that_is_in_doubt_is_not_read(text):
    assert read_answer(text, 4) is None


# the ways in which thoughts come in the text of a reply: before and behind the thought
THOUGHTS = {
    "think": ("<think>", "</think>"),
    "capitals": ("<THINK>\n", "\n</Think>\n\n"),
    "thinking": ("<thinking>", "</thinking>"),
    "reasoning with attributes": ('<reasoning effort="low">', "</reasoning>"),
    "thought": ("<thought>", "</thought>"),
    "reflection": ("<reflection>", "</reflection>"),
    "scratchpad": ("<scratchpad>", "</scratchpad>"),
    "namespace": ("<mm:think>", "</mm:think>"),
    "magistral": ("[THINK]", "[/THINK]"),
    "kimi": ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    "cohere": ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    "open thinker": ("<|begin_of_thought|>", "<|end_of_thought|>\n<|begin_of_solution|>"),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "gemma": ("<|channel>thought\n", "<channel|>"),
    "granite": ("Here is my thought process: ", "\n\nHere is my response: "),
    "harmony": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "harmony, constrained": (
        "<|start|>assistant<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    ),
    "harmony without tokens": ("analysisWe compare. ", "assistantfinal"),
    "only closed": ("", "</think>\n\n"),
    "gpt-oss without ends": ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    "medgemma": ("<unused94>thought\n", "<unused95>"),
    "escaped": ("&lt;think&gt;", "&lt;/think&gt;"),
    "pipes": ("<|thinking|>", "<|/thinking|>"),
    "of another kind inside": ("<thinking>\n<think>a</think>\n", "</thinking>"),
    "void first": ("<think/>\n<think>", "</think>"),
    "twice": ("<think>\n<think>\n", "</think>"),
    "nested": ("<think>one <think>two</think> three ", "</think>"),
    "two in a row": ("<think>hm</think>\n<think>", "</think>"),
    "empty first": ("<think>\n\n</think>\n\n<think>", "</think>"),
}
ANSWERS = [
    SAYS_B,
    f"```json\n{SAYS_B}\n```",
    "B",
    "**B**",
    "Answer: B",
    "B: a dark alley",
    f"<answer>{SAYS_B}</answer>",
]
IDEAS = [
    "Okay, let me compare the candidates.", f"Candidate A: {SAYS_A} would be wrong.", SAYS_A, "Answer: A", "**A**", "A",
    'The form is {"preference": "<label>"}.', "So the answer is A.", "Hmm, wait: C is darker { than } D.", "C",
    f"```json\n{SAYS_A}\n```", "I write [notes] and <b>bold</b> text.", "not B", "", "<answer>A</answer>",
]  # fmt: skip


@pytest.mark.parametrize("way", THOUGHTS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_answer_behind_a_thought_is_read_and_nothing_inside_it(way, answer):
    opening, closing = THOUGHTS[way]
    for idea in IDEAS:
        text = f"{opening}{idea}{closing}{answer}"
        assert read_answer(text, 4) == 1, text
        assert read_answer(f"{opening}{idea}{closing}", 4) is None
        if opening:
            assert read_answer(f"{opening}{idea}", 4) is None and read_answer(f"{opening}{idea}", 4, cut=True) is None


@st.composite
def replies(draw):
    """A reply and the position of the label that it ends with, None if it ends with none."""
    opening, closing = draw(st.sampled_from(sorted(THOUGHTS.values())))
    thought = draw(st.sampled_from(["\n", " ", "\n\n"])).join(draw(st.lists(st.sampled_from(IDEAS), max_size=4)))
    truth = draw(st.sampled_from("ABCD"))
    other = draw(st.sampled_from(sorted(set("ABCD") - {truth})))
    said = {
        text.replace("SAYS_T", json.dumps({"preference": truth})).replace("SAYS_O", json.dumps({"preference": other}))
        .replace("TRUTH", truth).replace("OTHER", other): known
        for text, known in [
            ("SAYS_T", truth), ("TRUTH", truth), ("**TRUTH**", truth), ("Answer: TRUTH", truth),
            ("Option TRUTH", truth),
            ("SAYS_T\n\nOTHER is a beach and does not fit.", truth), ("The best:\n```json\nSAYS_T\n```", truth),
            ("Not OTHER.\n\nAnswer: TRUTH", truth), ("OTHER is bright, TRUTH is dark.\n\nSAYS_T", truth),
            ("SAYS_O would be wrong.\nSAYS_T", truth), ("SAYS_O\nWait, no:\nSAYS_T", truth), ("OTHER? TRUTH.", truth),
            ("It is not OTHER, it is TRUTH.", truth), ("OTHER\n\nCorrection: TRUTH", truth), ("not OTHER", None),
            ("Neither TRUTH nor OTHER.", None), ("TRUTH or OTHER", None), ("OTHER, no: TRUTH", truth), ("", None),
            ("A bear would fit.", None), ("I can't say.", None), ("SAYS_O is not my answer.", None), ("OTHER?", None),
            ("If it rained: SAYS_O", None), ("The form is SAYS_O", None), ("SAYS_O\n\nHmm, rather TRUTH.", truth),
            ('{"rejected": "OTHER", "preference": "TRUTH"}', truth), ('{"not": "OTHER"}', None), ("!OTHER", None),
            ("SAYS_O? No. SAYS_T", truth), ("I'd say OTHER if I were careless, but I say\nTRUTH", truth),
            ("OTHER is better than nothing. Final answer: TRUTH", truth), ("Everything but OTHER", None),
        ]
    }  # fmt: skip
    answer = draw(st.sampled_from(sorted(said)))
    return opening, thought, closing, answer, said[answer]


@given(replies(), st.integers(0, 400), st.booleans())
@example(("<think>", f"Candidate A: {SAYS_A} would be wro", "", "", None), 400, True)
def test_a_reply_is_read_as_it_ends_or_not_at_all_wherever_it_is_cut(reply, place, cut):
    opening, thought, closing, answer, truth = reply
    known = None if truth is None else "ABCD".index(truth)
    text = opening + thought + closing + answer
    assert read_answer(text, 4) in (known, None)
    kept = text[:place]
    if cut and (opening or len(kept) > len(thought + closing)):  # an unopened thought may begin like an answer
        found = read_answer(kept, 4, cut=True)
        whole = len(opening + thought + closing)
        assert found is None or len(kept) > whole and json.loads(kept[whole:].strip("`json \n"))["preference"]


@given(st.text(alphabet="AB{}[]<>|/\"': \nthinkpreferc`*_.", max_size=60))
def test_any_text_ends_in_a_label_or_none(text):
    for cut in (False, True):
        assert read_answer(text, 2, cut=cut) in (0, 1, None)
    answer_part(text)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (SAYS_B, 1), (f"{SAYS_B}\n\n\n   ", 1), (f"```json\n{SAYS_B}\n```", 1), (f"<think>A</think>{SAYS_B}", 1),
        ("B", None), ("**B**", None), ("B: a dark", None), (f"{SAYS_B}\n\nExplanation: the al", None),
        (f"Candidate A: {SAYS_A} would be wro", None), (f"Candidate A: {SAYS_A}", None), ('{"preference": "B"', None),
        (f"{SAYS_A}{SAYS_A}", None), ("", None), (f"</think>{SAYS_B}", 1), (f"analysis{SAYS_A}", None),
    ],
)  # fmt: skip
def test_of_a_reply_that_was_cut_only_a_whole_object_counts(text, label):
    assert read_answer(text, 4, cut=True) == label


def test_a_label_with_its_own_text_is_read_whatever_the_text_says():
    candidates = ["A bear, not too bright", "an alley, out of focus, low light (f/2)", "C, D or E?", "x"]
    for text in (
        f"B: {candidates[1]}",
        f"**B**: {candidates[1]}.",
        f"B) {candidates[1]}",
        f"Answer: B - {candidates[1]}",
    ):
        assert read_answer(text, 4) is None and read_answer(text, 4, candidates=candidates) == 1
        assert read_answer(json.dumps({"preference": text}), 4, candidates=candidates) == 1
    assert read_answer(f"A: {candidates[0]}", 4, candidates=candidates) == 0
    assert read_answer(f"C: {candidates[2]}", 4, candidates=candidates) == 2
    for text in (
        "\n".join(f"{label}: {text}" for label, text in zip("ABCD", candidates, strict=True)), f"B: {candidates[0]}",
        f"not B: {candidates[1]}", candidates[0], f"B: {candidates[1]}s", f"{SAYS_A} B: {candidates[1]}",
    ):  # fmt: skip
        assert read_answer(text, 4, candidates=candidates) is None
    assert read_answer(f"B: {candidates[1]}", 4, candidates=candidates, cut=True) is None


@pytest.mark.parametrize(
    "text",
    [
        " " * 500_000, "</s>" * 125_000, "<think>" * 75_000, "<think>x" * 75_000, "</think>" * 75_000,
        SAYS_B * 100_000, "B" + " " * 500_000 + "x", "A " * 125_000, "\\boxed{" * 50_000,
        "`" * 500_000, "<" * 500_000,
        "<a " * 125_000, '"' * 500_000, "B. " * 125_000, "B\n" * 75_000, "<|channel|>" * 200_000, "a" * 500_000,
    ],
    ids=range(17),
)  # fmt: skip
@pytest.mark.timeout(60)
def test_long_replies_are_read_in_a_time_that_grows_with_their_length(text):
    for cut in (False, True):
        assert read_answer(text, 4, cut=cut) in (None, 1)
