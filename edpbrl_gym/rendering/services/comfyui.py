"""``ComfyUIRenderer``: pictures by a workflow of ComfyUI: POST /prompt, GET /history, /queue and /view."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edpbrl_gym._http.errors import ServerError, parse_json
from edpbrl_gym._texts import read_text
from edpbrl_gym.rendering.base import NotDrawn
from edpbrl_gym.rendering.services.http import HttpService, only_one

__all__ = ["ComfyUIRenderer", "Workflow"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks at a picture under way
_MARK = "edpbrl"  # of a job, by which it is found again where the answer to its request was lost
_NAMES = ("prompt", "seed", "negative", "width", "height", "steps", "guidance", "model")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(_NAMES) + r")\}")
_log = logging.getLogger(__name__)


class ComfyUIRenderer(HttpService):
    """A workflow of ComfyUI, exported for the API, with placeholders in its texts.

    "{prompt}" is the text and required; "{seed}", "{negative}", "{width}", "{height}", "{steps}", "{guidance}" and
    "{model}" are for the options. Without "{seed}" each picture is one sample. A picture that was drawn or waits in the
    server's queue when an answer was lost or this process was killed is taken from there, not drawn again.

    Args:
        url: Address of the server, such as http://127.0.0.1:8188.
        workflow: File of the workflow.
        node: Id of the node whose picture counts (None: the one SaveImage; without any, the one node at an end).
        negative: For "{negative}", as are ``steps`` and ``guidance`` for theirs.
        **connection: See ``HttpService``. ``height`` and ``width`` are those of the picture; ``timeout`` counts from
            where the server begins to draw it, which is then interrupted.

    Raises:
        FileNotFoundError, ValueError, TypeError: See ``Workflow`` and ``HttpService``.
    """

    example = "http://127.0.0.1:8188"
    is_paid = True  # what may be in the queue is looked for there

    def __init__(
        self,
        url: str,
        *,
        workflow: str | None = None,
        node: str | int | None = None,
        negative: str = "",
        steps: int | None = None,
        guidance: float | None = None,
        **connection: Any,
    ) -> None:
        super().__init__(url.strip().rstrip("/").removesuffix("/prompt"), **{"batch_size": 2} | connection)
        if not workflow:
            raise ValueError(f"Expected the file of a workflow, as in 'comfyui:{self.url}?workflow=FILE', got none")
        width, height = self.size or (None, None)
        given = {"negative": negative, "width": width, "height": height, "steps": steps, "guidance": guidance}
        self.workflow = Workflow(str(workflow), None if node is None else str(node), given | {"model": self.model})
        self.seeded = self.workflow.seeded
        self._lock = threading.Lock()
        self._earlier: dict[str, str] | None = None  # jobs at the server before the first picture, by their marks

    def request(self) -> dict[str, Any]:
        return self.workflow.settings

    def picture(self, text: str, seed: int, stop: threading.Event) -> bytes:
        nodes = self.workflow.filled(text, seed)
        with self._lock:
            if self._earlier is None:
                self._earlier = self._jobs()
            job = self._earlier.pop(_marked(nodes), None)
        saving = nodes[self.workflow.node]["inputs"]
        for again in (False, True):
            try:
                return self._drawn(job or self._begin(nodes, text, seed, stop), nodes, text, stop)
            except NotDrawn as error:
                if again or "it answered 404" not in str(error) or "filename_prefix" not in saving:
                    raise
                # its file was removed: saved under another name, it comes from the server's cache
                job, saving["filename_prefix"] = None, f"{saving['filename_prefix']}-{os.urandom(4).hex()}"
        raise AssertionError

    def _begin(self, nodes: dict[str, Any], text: str, seed: int, stop: threading.Event) -> str:
        """The id of a job that is in the server's queue now."""
        document = {"prompt": nodes, "extra_data": {_MARK: _marked(nodes)}}
        try:
            job = self.ask_json("/prompt", document, stop=stop, text=text, number=seed).get("prompt_id")
        except NotDrawn:
            job = self._jobs().get(_marked(nodes))  # it may be in the queue although the answer was lost
            if job is None:
                raise
        if not isinstance(job, str) or not re.fullmatch(r"[\w-]{1,100}", job):
            raise NotDrawn("Expected a prompt_id in the reply, got none")
        return job

    def _drawn(self, job: str, nodes: dict[str, Any], text: str, stop: threading.Event) -> bytes:
        node = self.workflow.node
        try:
            entry = self._finished(job, text, stop)
        except NotDrawn:
            self._earlier = None  # it may be drawn all the same, and is looked for by the next call
            raise
        with suppress(KeyError, IndexError, TypeError):
            if entry["prompt"][2] != nodes:
                raise NotDrawn("Expected a picture of the workflow that was sent, the server has drawn another one")
        problem = _failure(entry.get("status"))
        if problem is not None:
            raise NotDrawn(f"it was not drawn{self._said(ServerError(200, message=problem), b'', text)}")
        try:
            images = entry["outputs"][node]["images"]
            if len(images) > 1:
                raise ValueError(
                    f"Expected one picture of node {node} for a text, got {len(images)}; set batch_size to 1 in the "
                    "workflow, or name another node by the option node"
                )
            place = {name: str(only_one(images)[name]) for name in ("filename", "subfolder", "type")}
        except (KeyError, TypeError, NotDrawn):
            raise NotDrawn(f"Expected a picture of node {node} of the workflow, got none") from None
        return self.picture_at(self.address("/view", place), stop)

    def _finished(self, job: str, text: str, stop: threading.Event) -> dict[str, Any]:
        """What the server remembers of a job, when it is done."""
        began, pause, is_told = time.monotonic(), _FIRST_PAUSE, False
        while True:
            queue = self.ask_json("/queue", stop=stop, text=text)
            running, waiting = (
                [str(one[1]) for one in jobs if isinstance(one, list) and len(one) > 1]
                if isinstance(jobs, list)
                else []
                for jobs in (queue.get("queue_running"), queue.get("queue_pending"))
            )
            entry = self.ask_json(f"/history/{job}", stop=stop, text=text).get(job)
            if isinstance(entry, dict):
                return entry
            if job in waiting:
                began = time.monotonic()
                if not is_told:
                    _log.info("%d others are in the queue of %s", len(running) + len(waiting) - 1, self.url)
                is_told = True
                if stop.is_set():
                    self._end("/queue", {"delete": [job]})
                    raise NotDrawn("stopped before the server began to draw it")
            elif job not in running:
                raise NotDrawn("the server no longer knows what it was to draw; was it started again?")
            elif time.monotonic() - began > self.timeout:
                self._end("/interrupt", {"prompt_id": job})  # older servers end whatever they draw, which is this
                raise NotDrawn(f"it was not drawn within {self.timeout:g} s (timeout)")
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _end(self, path: str, document: dict[str, Any]) -> None:
        """Ask the server to draw something no longer."""
        with suppress(NotDrawn, ConnectionError):  # it is drawn in vain then
            super()._attempt(self.address(path), json.dumps(document).encode(), "")

    def _jobs(self) -> dict[str, str]:
        """The jobs at the server that this library has sent and that did not fail, by their marks."""
        found = {}
        # in this order: a job goes from the queue into the history
        for path, query in (("/queue", None), ("/history", {"max_items": "200"})):
            answer, _ = super()._attempt(self.address(path, query), None, "")
            content = parse_json(answer.body) if answer is not None else None
            for value in content.values() if isinstance(content, dict) else ():
                is_done = isinstance(value, dict) and _failure(value.get("status")) is None
                for item in [value.get("prompt")] if is_done else value if isinstance(value, list) else ():
                    with suppress(IndexError, KeyError, TypeError):
                        found[str(item[3][_MARK])] = str(item[1])
        return found

    def explain(self, body: bytes) -> str:
        content = parse_json(body)
        with suppress(AttributeError, IndexError, KeyError, StopIteration, TypeError):
            node, one = next(iter(content["node_errors"].items()))
            said = ": ".join(str(one["errors"][0][name]) for name in ("message", "details"))
            return f"node {node} ({one['class_type']}): {said}"
        return ""


def _marked(nodes: Mapping[str, Any]) -> str:
    """The mark of a job: sha256 (hex) of its nodes."""
    return hashlib.sha256(json.dumps(nodes, sort_keys=True).encode()).hexdigest()


def _failure(status: Any) -> str | None:
    """Why a job failed, in a line; None if it didn't."""
    if not isinstance(status, dict) or status.get("status_str") in (None, "success"):
        return None
    with suppress(KeyError, TypeError, ValueError):
        told = dict(status["messages"])
        if "execution_interrupted" in told:
            return "it was interrupted there"
        error = told["execution_error"]
        return f"node {error['node_id']} ({error['node_type']}): {error['exception_message']}"
    return "it failed without a reason"


class Workflow:
    """Nodes of ComfyUI by their ids, with placeholders; a text that is a placeholder alone becomes its value.

    Args:
        path: The file, as the interface exports it for the API.
        node: Id of the node whose picture counts (None: see ``ComfyUIRenderer``).
        values: Values of the placeholders without text and seed; None where there is none.

    Attributes:
        node: The node whose picture counts.
        seeded: Whether there is a placeholder for the seed.
        settings: What determines a picture beside text and seed; JSON-able.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no such workflow; several nodes give pictures; a placeholder has no value or no influence on
            the picture; a value has no placeholder.
    """

    def __init__(self, path: str, node: str | None, values: Mapping[str, Any]) -> None:
        self._nodes = _read(Path(path).expanduser())
        self.node = self._output(path, node)
        counting, todo = set[str](), [self.node]  # the nodes on which the picture depends
        while todo:
            counting.add(one := todo.pop())
            todo += [link for link in self._links(one) if link not in counting]
        places = {one: set(_PLACEHOLDER.findall(json.dumps(at["inputs"]))) for one, at in self._nodes.items()}
        if not any("prompt" in names for names in places.values()):
            texts = [one for one, at in self._nodes.items() if isinstance(at["inputs"].get("text"), str)]
            raise ValueError(
                f"Expected {{prompt}} in the workflow {path}, got none; write it in place of the text of a node; those "
                f"with a text are {self._listed(texts)}"
            )
        for name in _NAMES:
            there = [one for one, names in places.items() if name in names]
            if there and not counting.intersection(there):
                raise ValueError(
                    f"Expected {{{name}}} in the workflow {path} to be linked to node {self.node}, whose picture "
                    f"counts, got it in {self._listed(there)} alone; link them, or leave it out"
                )
            if name in values and bool(there) != (values[name] is not None) and (there or values[name] != ""):
                do = f"set {name}" if there else f"write {{{name}}} where it belongs, or leave {name} out"
                raise ValueError(f"Expected {name} and {{{name}}} for the workflow {path}, got one of them; {do}")
        known = {name for names in places.values() for name in names}
        self.seeded = "seed" in known
        self._values = {name: value for name, value in values.items() if name in known}
        self.settings = {"workflow": _marked(self._nodes), "node": self.node, **self._values}

    def filled(self, text: str, seed: int) -> dict[str, Any]:
        """The nodes with values in place of the placeholders."""
        values = {**self._values, "prompt": text, "seed": seed}

        def fill(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: fill(one) for name, one in value.items()}
            if isinstance(value, list):
                return [fill(one) for one in value]
            if not isinstance(value, str):
                return value
            alone = _PLACEHOLDER.fullmatch(value)
            return values[alone[1]] if alone else _PLACEHOLDER.sub(lambda found: str(values[found[1]]), value)

        return {one: {**at, "inputs": fill(at["inputs"])} for one, at in self._nodes.items()}

    def _output(self, path: str, node: str | None) -> str:
        """The node whose picture counts."""
        if node is not None and node not in self._nodes:
            raise ValueError(
                f"Expected a node of the workflow {path}, got {node!r}; it has {self._listed(self._nodes)}"
            )
        linked = {link for one in self._nodes for link in self._links(one)}
        ends = [one for one in self._nodes if one not in linked]
        kinds = {one: at["class_type"] for one, at in self._nodes.items()}
        saving = [one for one, kind in kinds.items() if kind == "SaveImage"]
        chosen = [node] if node else saving or [one for one in ends if not kinds[one].startswith("Preview")] or ends
        if len(chosen) != 1:
            raise ValueError(
                f"Expected one node of the workflow {path} that gives the picture, got {self._listed(chosen)}; name "
                "one by the option node"
            )
        return chosen[0]

    def _links(self, node: str) -> list[str]:
        """The nodes whose outputs are inputs of a node."""
        inputs = self._nodes[node]["inputs"].values()
        pairs = [one for one in inputs if isinstance(one, list) and len(one) == 2]
        return [str(one) for one, _ in pairs if str(one) in self._nodes]

    def _listed(self, nodes: Any) -> str:
        return ", ".join(f"{one} ({self._nodes[one]['class_type']})" for one in [*nodes][:12]) or "none"


def _read(path: Path) -> dict[str, Any]:
    """The nodes in a file, without their titles."""
    try:
        content = json.loads(read_text(path))
        nodes = {
            one: {"class_type": str(at["class_type"]), "inputs": dict(at["inputs"])} for one, at in content.items()
        }
        return nodes
    except (json.JSONDecodeError, RecursionError, KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(
            f"Expected a workflow of ComfyUI for the API in {path}: nodes with class_type and inputs, as JSON; got "
            "something else; export it there with Workflow > Export (API), in older versions Save (API Format)"
        ) from None
