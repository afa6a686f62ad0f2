"""What a chat completion says: its text, how it ended, and its answer behind the thoughts of the model."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from edpbrl_gym._http.errors import parse_json
from edpbrl_gym.oracles.judge.questions import Usage

__all__ = ["CUT", "Reply", "answer_part", "read_completion"]

# finish reasons of OpenAI, Azure, Mistral, Anthropic, Gemini, Cohere, DeepSeek, GLM and gateways; others may be
# arbitrary text of the server, which is not shown
CUT = frozenset(
    "length max_tokens max_output_tokens max_completion_tokens model_length token_limit incomplete "
    "model_context_window_exceeded".split()
)
_FILTERED = frozenset(
    "content_filter content_filtered safety recitation prohibited_content blocklist spii sensitive refusal".split()
)
_BROKEN = frozenset("error abort cancelled network_error insufficient_system_resource".split())
_ENDED = frozenset(
    "stop tool_calls function_call eos eos_token end_turn stop_sequence complete completed tool_use".split()
)
_TEXTS = ("text", "output_text")  # types of the parts that hold the answer; all others are thoughts or the like
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")
_LONGEST_NAME = 200  # characters of a model's name
_LARGEST_COUNT = 2**31  # tokens; larger numbers are not counts


@dataclass(frozen=True)
class Reply:
    """The result of sending one question.

    Its kind is "text" (the model wrote something), "refused" (the model or the server's filter declined), "rejected"
    (the server does not accept the request: 400, 413, 422), "failed" (no answer after all retries), or "stopped".
    """

    kind: Literal["text", "refused", "rejected", "failed", "stopped"]
    text: str = ""  # with the arguments of tool calls, without thoughts in fields or parts of their own
    usage: Usage | None = None  # tokens reported by the server; None if it reports none
    status: str = ""  # or the name of the error, or how the text ended; never a message, which may contain the prompt
    model: str = ""  # name of the model reported by the server, up to 200 characters
    cut: bool = False  # whether the text was cut at a limit on its tokens


def read_completion(body: bytes, status: int) -> Reply:
    """The reply from the body of an answer with a status below 400; the body may be anything."""
    content = parse_json(body)
    if not isinstance(content, dict):
        return Reply("failed", status=f"{status}, but no JSON to be read")
    choices = content.get("choices")
    if not isinstance(choices, list):  # truncated, or not a chat endpoint
        return Reply("failed", status=f"{status}, but no chat completion")
    model = content.get("model")
    fields: dict[str, Any] = {"model": model[:_LONGEST_NAME] if isinstance(model, str) else ""}
    fields["usage"] = _usage(content.get("usage"))
    if not choices:
        return Reply("text", status="no choices in the answer", **fields)
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message, finish = choice.get("message"), str(choice.get("finish_reason")).lower()
    message = message if isinstance(message, dict) else {"content": choice.get("text")}
    text, refused = _text(message)
    if refused or finish in _FILTERED:
        return Reply("refused", status="content_filter" if finish in _FILTERED else "refusal", **fields)
    if finish in _BROKEN:
        return Reply("failed", status=f"{status}, but ended by {finish}", **fields)
    if finish in CUT:
        return Reply("text", text, status=finish, cut=True, **fields)
    if not text.strip():
        thoughts = any(message.get(name) for name in ("content", *_THOUGHTS))
        return Reply("text", status="thoughts without an answer" if thoughts else "an empty answer", **fields)
    return Reply("text", text, status=finish if finish in _ENDED else "an unknown finish reason", **fields)


def _text(message: dict[str, Any]) -> tuple[str, bool]:
    """The text of a message, with the arguments of tool calls as further lines, and whether it is a refusal."""
    content, refused = message.get("content"), bool(message.get("refusal"))
    if isinstance(content, dict):  # one part, or the object itself
        content = [content if "type" in content or "text" in content else json.dumps(content)]
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            refused = refused or part.get("type") == "refusal"
            part = part.get("text") if part.get("type", "text") in _TEXTS else None
            part = part.get("value") if isinstance(part, dict) else part
        if isinstance(part, str):
            texts.append(part)
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    lines = ["".join(texts)]
    for function in [*functions, message.get("function_call")]:
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if arguments:
            lines.append(arguments if isinstance(arguments, str) else json.dumps(arguments))
    return "\n".join(lines), refused


def _usage(reported: Any) -> Usage | None:
    """Tokens reported by the server; None if they can't be counts."""
    counts = (
        [reported.get(name) for name in ("prompt_tokens", "completion_tokens")]
        if isinstance(reported, dict)
        else [None]
    )
    if not all(type(count) is int and 0 <= count < _LARGEST_COUNT for count in counts):
        return None
    return Usage(*counts)


# -- thoughts ----------------------------------------------------------------------------------------------------------

# A server that knows its model puts thoughts into a field or a part of their own. Others leave them in the text,
# between the markers of the model: <think>, [THINK], <seed:think>, <|START_THINKING|>, the channels of gpt-oss and
# Gemma, the phrases of Granite. Some chat templates write the opening marker themselves, so that only the closing one
# is in the reply, and some servers drop the special tokens around the names of gpt-oss's channels.

_STOP = re.compile(  # what models write last, and servers should have removed
    r"<\|(?:im_end|eot_id|eom_id|end|return|endoftext|end_of_text|end_of_turn)\|>|</s>|<eos>|<end_of_turn>|<turn\|>"
    r"|<\uff5cend\u2581of\u2581sentence\uff5c>"
)
_VOID = re.compile(r"<[\w:.-]+\s*/>")
_MARK = re.compile(
    r"<(?P<angle>/?[a-z][\w:.-]+)(?:\s[^<>]*)?>"  # <think>, </seed:think>, <reasoning effort="low">
    r"|<\|(?P<pipes>/?[\w:.-]{2,40})\|?>|<(?P<closing>[\w:.-]{2,40})\|>"  # <|END_THINKING|>, <|channel>, <channel|>
    r"|\[(?P<square>/?(?:think|thinking|thoughts?|reasoning|analysis|reflection))\]"
    r"|\u25c1(?P<triangle>/?\w+)\u25b7",
    re.IGNORECASE,
)
_THOUGHT = re.compile(
    r"(?:\w+:)?(?:\w*(?:think|thought|reason|reflect|analy[sz]|rationale|monologue|scratch|deliberat)\w*|cot|channel"
    r"|inner|plan|planning|critique|draft)"
)
_WRAPPERS = frozenset(
    "answer final final_answer output response result conclusion solution verdict preference choice json box tool_call "
    "function_call".split()
)
_CHANNEL = "<|channel|>"
_FINAL = re.compile(r"final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>(.*)", re.DOTALL)
_PHRASES = tuple(
    re.compile(rf"here(?:'s|\u2019s| is) my {words}:", re.IGNORECASE) for words in ("thought process", "response")
)


def answer_part(text: str) -> str | None:
    """The part of a reply that is behind all thoughts, which may be empty.

    None where a thought does not end, where text stands only before one, or where markers are not understood, so that
    it is unknown what is a thought.
    """
    text = _VOID.sub("", _without_stops(html.unescape(text) if "&lt;" in text else text))
    text = text.replace("<unused94>", "<think>").replace("<unused95>", "</think>")  # of MedGemma
    if _CHANNEL in text:
        return _final_channel(text)
    if re.match(r"\s*(?:analysis|commentary)(?=[A-Z\"'{\u201c])|\s*assistantfinal", text):  # channels without tokens
        return _unwrapped(text.rpartition("assistantfinal")[2]) if "assistantfinal" in text else None
    if _PHRASES[0].match(text.lstrip()):
        *thought, answer = _PHRASES[1].split(text)
        return _unwrapped(answer) if thought else None
    start, opened, depth, duplicate, is_before = 0, "", 0, -1, False
    for mark in _MARK.finditer(text):
        family, closes = _family(mark)
        if depth:  # only its own kind of marker ends a thought
            if family != opened:
                continue
            if not closes and 0 <= duplicate and not text[duplicate : mark.start()].strip():
                duplicate = mark.end()  # written by the template and by the model
                continue
            duplicate = -1
            depth += -1 if closes else 1
            start = mark.end()
        elif _THOUGHT.fullmatch(family.partition(" ")[2]):
            if closes:  # everything before it was a thought
                start, is_before = mark.end(), False
            else:
                is_before = is_before or bool(text[start : mark.start()].strip())
                opened, depth, duplicate = family, 1, mark.end()
    if depth or is_before and not text[start:].strip():
        return None
    return _unwrapped(text[start:])


def _without_stops(text: str) -> str:
    for _ in range(4):
        text = text.rstrip()
        last = _STOP.match(text, max(0, text.rfind("<")))
        if last is None or last.end() < len(text):
            break
        text = text[: last.start()]
    return text


def _family(mark: re.Match[str]) -> tuple[str, bool]:
    """Kind of brackets and name of a marker, and whether it closes a thought."""
    kind = str(mark.lastgroup)
    name = mark[kind].lower()
    closes = kind == "closing" or name.startswith("/") or kind == "pipes" and bool(re.match(r"end_|\w+_suffix$", name))
    if kind in ("pipes", "closing"):
        kind, name = "pipes", re.sub(r"^(?:start_|begin_|end_)(?:of_)?|_(?:prefix|suffix)$", "", name)
    return f"{kind} {name.lstrip('/')}", closes


def _unwrapped(text: str) -> str | None:
    """The text without the markers of an answer, such as <answer>; None if others are left."""
    for mark in _MARK.finditer(text):
        if _family(mark)[0].partition(" ")[2] not in _WRAPPERS:
            return None
    return _MARK.sub("\n", text)


def _final_channel(text: str) -> str | None:
    """The message in the last channel of gpt-oss, None if that is not its final one."""
    found = _FINAL.match(text.rpartition(_CHANNEL)[2])
    return None if found is None else _unwrapped(_without_stops(found[1]))
