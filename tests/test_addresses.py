"""Hosts and origins are compared in one form, whatever people, browsers and proxies write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym._addresses import host_name, host_of, origin

BUECHER = "xn--bcher-kva.example"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Study.Example.ORG", "study.example.org"),
        ("study.example.org.", "study.example.org"),
        ("my_host", "my_host"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("XN--BCHER-KVA.example.", BUECHER),
        pytest.param("bücher.example", BUECHER, marks=pytest.mark.needs("study")),
        pytest.param("BÜCHER.EXAMPLE.", BUECHER, marks=pytest.mark.needs("study")),
        pytest.param("bu\u0308cher.example", BUECHER, marks=pytest.mark.needs("study")),
        pytest.param("straße.example", "xn--strae-oqa.example", marks=pytest.mark.needs("study")),
        pytest.param("例え。テスト", "xn--r8jz45g.xn--zckzah", marks=pytest.mark.needs("study")),
        pytest.param("☃.example", "xn--n3h.example", marks=pytest.mark.needs("study")),
    ],
)
def test_a_name_has_one_form(written, name):
    assert host_name(written) == name == host_name(name)
    bracketed = f"[{written}]" if ":" in written else written
    assert host_of(bracketed) == host_of(f"{bracketed}:8443") == name


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://study.example.org", "https://study.example.org"),
        ("HTTPS://Study.Example.org:443/", "https://study.example.org"),
        ("http://study.example.org.:80", "http://study.example.org"),
        ("http://study.example.org:443", "http://study.example.org:443"),
        ("https://[2001:DB8::0001]:8443/", "https://[2001:db8::1]:8443"),
        pytest.param("https://BÜCHER.example.:8443", f"https://{BUECHER}:8443", marks=pytest.mark.needs("study")),
    ],
)
def test_an_address_has_one_origin(url, expected):
    assert origin(url) == expected == origin(expected)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        *((host_of, text) for text in (
            "", ".", "a..b", "a" * 64, "a:b", "a:", "a:99999", "me@host", "host/path", "[::1", "::1",
            "[::1]x", "a b?c", "[a]",
        )),
        *((origin, text) for text in (
            "", "null", "study.example.org", "ftp://a", "https://", "https://a/b", "https://a?b", "https://a#b",
            "https://me@a", "https://me:secret@a", "https://a:99999", "https://[::1", "https://a:b", "https://a b",
            "https://a..b",
        )),
    ],
)  # fmt: skip
def test_what_is_no_host_and_no_origin_is_refused(read, written):
    with pytest.raises(ValueError):
        read(written)


@pytest.mark.needs("study")
@given(st.text(max_size=40))
def test_any_text_is_a_host_or_refused(text):
    try:
        name = host_of(text)
    except ValueError:
        return
    assert name.isascii() and host_of(f"[{name}]" if ":" in name else name) == name
