"""Names of hosts and origins in the one form in which they can be compared, and the addresses and keys of services."""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

__all__ = ["OPENAI_KEY", "OPENAI_URL", "check_address", "check_key_variable", "host_name", "host_of", "key_headers",
           "origin"]  # fmt: skip

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"

_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?:\[(?P<address>[^\[\]]*:[^\[\]]*)\]|(?P<name>[^\[\]:/?#@]*))(?::(?P<port>[0-9]{1,5}))?")
# words of names of parameters that carry secrets, and of values that are some
_SECRET_WORDS = {
    "auth", "authorization", "bearer", "code", "cookie", "credential", "credentials", "jwt", "key", "pass", "passwd",
    "password", "pat", "pw", "pwd", "sas", "secret", "session", "sid", "sig", "sign", "signature", "token",
}  # fmt: skip
_SECRET_ENDINGS = ("key", "token", "secret", "password", "passwd", "signature", "credential")
_SECRET_VALUE = re.compile(
    r"\b(?:sk|pk|rk|gsk|hf|xai|nvapi|ghp|key)[-_]|\b(?:AIza|eyJ)|(?=\w*[0-9])(?=\w*[A-Za-z])[A-Za-z0-9]{20}"
)
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")


def host_name(name: str) -> str:
    """The name or address of a host as browsers write it: ASCII in lower case, without a dot at its end.

    Letters of other scripts become "xn--..." (IDNA 2008 with the mapping of UTS 46, as in browsers; it needs the
    package idna), and an IPv6 address is in its shortest form, without brackets.
    """
    if ":" in name:
        return str(ipaddress.IPv6Address(name))
    if not name.isascii():
        import idna

        try:
            name = idna.encode(name, uts46=True).decode()
        except idna.IDNAError:  # symbols, which only the rules of 2003 know
            name = name.encode("idna").decode()
    name = name.lower().removesuffix(".")
    if not _NAME.fullmatch(name):
        raise ValueError(f"Expected letters, digits and hyphens, 1 to 63 between two dots, got {name[:80]!r}")
    return name


def host_of(authority: str) -> str:
    """The ``host_name`` in "HOST" or "HOST:PORT", as a request names it."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None or int(found["port"] or 0) > 65535:
        raise ValueError(f"Expected a host, perhaps with a port, got {authority[:80]!r}")
    return host_name(found["address"] or found["name"])


def origin(url: str) -> str:
    """Scheme, ``host_name`` and port of an http or https address without more, the port only if it is another one."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"Expected an address such as https://study.example.org, without a path, got {url[:200]!r}")
    name, port = host_of(parts.netloc), parts.port
    host = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{host}{'' if port in (None, _PORTS[parts.scheme]) else f':{port}'}"


# -- services ----------------------------------------------------------------------------------------------------------


def check_key_variable(variable: str | None) -> str | None:
    """Return the name of the environment variable with a key, or None."""
    if variable is not None and not (isinstance(variable, str) and re.fullmatch(r"[A-Za-z_]\w{0,99}", variable)):
        # the value is not shown: somebody may have put the key itself here
        raise ValueError(
            "Expected api_key_variable as the name of an environment variable (letters, digits and _), got "
            "something else; put the key into that variable, never into the settings"
        )
    return variable


def check_address(address: str, name: str, example: str, variable: str) -> SplitResult:
    """Return the parts of the http or https address of a service, without spaces around it; ``name`` is the setting.

    Raises:
        ValueError: It is none, or has a password, a key or a "#" part; ``variable`` is where keys belong.
    """
    try:
        url = urlsplit(address.strip())
        is_valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        host_name(url.hostname or "")
    except (ValueError, TypeError, AttributeError):
        is_valid = False
    if not is_valid:
        description = "one with a password" if "@" in str(address) else repr(address)  # hide a password
        raise ValueError(f"Expected {name} as an http or https address such as {example!r}, got {description}")
    if url.username is not None or url.password is not None or url.fragment:
        raise ValueError(
            f"Expected {name} without a password and without a '#' part, since it is written to files; put the key "
            f"into an environment variable ({variable}) and name that"
        )
    secret = _secret_parameter(url)
    if secret is not None:
        raise ValueError(
            f"Expected {name} without a key among its parameters, since it is written to files, got {secret}; put the "
            f"key into an environment variable ({variable}) and name that by api_key_variable"
        )
    return url


def _secret_parameter(url: SplitResult) -> str | None:
    """What to call the first parameter of an address that looks like a key, None if there is none."""
    for name, value in parse_qsl(url.query.replace(";", "&"), keep_blank_values=True):
        if _SECRET_VALUE.search(name):
            return "one that looks like a key itself"
        words = re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*", name)
        letters = "".join(words).lower()
        if _SECRET_WORDS & {word.lower() for word in words} or letters.endswith(_SECRET_ENDINGS):
            return f"the parameter {name!r}"
        if _SECRET_VALUE.search(value):
            return f"the parameter {name!r} with a value that looks like a key"
    return None


def key_headers(variable: str | None, address: str) -> dict[str, str]:
    """The headers of the account at a service, with the key that is in an environment variable; none without one.

    Raises:
        ValueError: There is no key in the variable, or one that no header can have.
    """
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(
            f"Expected the key of the endpoint in the environment variable {variable}, got none; set it, or name an "
            "endpoint that needs none by base_url"
        )
    headers = {"Authorization": f"Bearer {key}"}
    if "api-version" in dict(parse_qsl(urlsplit(address).query)):  # Azure, which reads its keys elsewhere
        headers["api-key"] = key
    if variable == OPENAI_KEY:  # these variables belong to the same account
        for header, name in (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")):
            if os.environ.get(name, "").strip():
                headers[header] = os.environ[name].strip()
    for value in headers.values():
        if not (value.isascii() and value.isprintable()):
            raise ValueError(
                f"Expected letters that a key can have in the environment variable {variable} (and OPENAI_ORG_ID, "
                "OPENAI_PROJECT_ID), got others; copy it again"
            )
    return headers
