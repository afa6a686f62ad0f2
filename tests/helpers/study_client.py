"""A browser without JavaScript: it reads the forms of a page, fills them in and posts them."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from typing import Any


class Forms(HTMLParser):
    """The forms of a page: their address and fields with the values that a browser would send unasked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[dict[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "form":
            self.forms.append({"action": values["action"], "method": values.get("method"), "fields": {}, "choices": {}})
        elif tag in ("input", "select") and self.forms and "name" in values:
            form = self.forms[-1]
            if values.get("type") in ("radio", "checkbox"):
                form["choices"].setdefault(values["name"], []).append(values["value"])
            else:
                form["fields"][values["name"]] = values.get("value", "")


class Person:
    """A participant in front of a client of the application.

    Args:
        client: Client with a cookie jar of its own.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.page: Any = None

    def get(self, address: str, **options: Any) -> Any:
        self.page = self.client.get(address, **options)
        return self.page

    def form(self, action: str) -> dict[str, Any]:
        return next(form for form in Forms(self.page.text).forms if form["action"] == action)

    def post(self, action: str, to: str | None = None, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        """Fill in the form with an address and post it, following the redirect."""
        content = {**self.form(action)["fields"], **{name: str(value) for name, value in fields.items()}}
        self.page = self.client.post(to or action, data=content, headers=headers)
        return self.page

    def arrive(self, **external: str) -> Any:
        """Open the link, agree, and answer the questions about the instructions correctly where there are any."""
        self.get("/", params=external)
        self.post("/consent", agree="yes")
        return self.page

    def begin(self, **external: str) -> None:
        """Arrive at the first question."""
        self.arrive(**external)
        self.post("/instructions")
        assert self.at == "/question", self.page.text

    def play(self, limit: int = 50, *, cant_tell: bool = False) -> int:
        """Answer every question with its first option on the page, or none; return how many there were."""
        for count in range(limit):
            if self.at != "/question":
                return count
            fields = {"cant_tell": "1"} if cant_tell else {"best": self.form("/answer")["choices"]["best"][0]}
            self.post("/answer", **fields)
        raise AssertionError("the study does not end")

    def wait_for_style(self, seconds: float = 60.0) -> None:
        """Open the last page again until it waits for no learnt taste."""
        end = time.monotonic() + seconds
        while "data-pending" in self.page.text:
            assert time.monotonic() < end, self.page.text
            time.sleep(0.15)  # fewer than the ten requests a second that a person may send
            self.get("/end")

    @property
    def key(self) -> str:
        return str(self.form("/answer")["fields"]["key"])

    @property
    def at(self) -> str:
        return str(self.page.url.path)
