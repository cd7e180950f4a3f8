"""What is wrong with an address or a host, in words that follow its key. Pure.

Each function answers None for a good one. No more of an address shows than its host.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

URL_MAX_LETTERS: Final = 8_192
LABEL_MAX_LETTERS: Final = 63
HOST_MAX_LETTERS: Final = 253
EMAIL_MAX_LETTERS: Final = 254
LOCAL_MAX_LETTERS: Final = 64
IPV4_NUMBERS: Final = 4
_ALNUM: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_ATEXT: Final = _ALNUM | frozenset("!#$%&'*+-/=?^_`{|}~")
_EXAMPLE: Final = "one such as ops@example.com is needed"


def url_fault(url: str, *, may_hold_login: bool = False) -> str | None:
    """For an https address; plain http only to this machine.

    What passes is one that a request can be made of, whether or not its host is there.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return "is no web address"
    good = host and parts.scheme in {"http", "https"} and url.isprintable() and " " not in url
    if not host or not good or len(url) > URL_MAX_LETTERS:
        return f"is no https address{f' of at most {URL_MAX_LETTERS:,} letters' if good else ''}"
    if parts.scheme == "http" and not is_loopback(host):
        return f"is plain http to {host}: use https"
    if not _is_host(host) or ("[" in parts.netloc and ":" not in host):
        return "has a host's name that can't be: copy it again"
    if not may_hold_login and (parts.username is not None or parts.password is not None):
        return "holds a login before the host's name, which this channel can't use"
    return None


def host_fault(host: str) -> str | None:
    """For the name or address of a server, without a port."""
    if ":" in host:
        import ipaddress

        try:
            ipaddress.ip_address(host)
        except ValueError:
            return "is no host's name: leave out the scheme and the port, which is set by itself"
        return None
    if len(host) > HOST_MAX_LETTERS or not all(map(_is_label, host.removesuffix(".").split("."))):
        return "is no host's name: one such as smtp.example.com is needed"
    return None


def _is_host(host: str) -> bool:
    """Whether it can be looked up: a name, in any letters, or an address of numbers."""
    labels = host.removesuffix(".").split(".")
    if ":" in host or (len(labels) == IPV4_NUMBERS and all(map(_is_number, labels))):
        import ipaddress

        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True
    if not host.isascii() or any(label.lower().startswith("xn--") for label in labels):
        return _is_international(host)
    return host_fault(host) is None


def _is_international(host: str) -> bool:
    """By the rules of the library that makes the requests; its tables are dear to load."""
    import idna

    try:
        coded = idna.encode(host.lower()).decode("ascii")
        idna.decode(coded)
    except UnicodeError:
        return False
    return host_fault(coded) is None


def email_fault(address: str) -> str | None:
    """For one plain address.

    Narrower than the standard: ASCII, no quotes, no comments, no name around it. Libraries
    cut a hostile address short without a word, so it is judged before they see it.
    """
    local, _, domain = address.rpartition("@")
    if not local or not domain:
        return f"is no e-mail address: {_EXAMPLE}"
    if not address.isascii():
        return "has letters beyond ASCII: write the domain in its xn-- form"
    if any(letter in address for letter in " <>,;"):
        return f"is more than one plain address: {_EXAMPLE}, each by itself and without a name"
    good = (
        len(address) <= EMAIL_MAX_LETTERS
        and len(local) <= LOCAL_MAX_LETTERS
        and all(atom and _ATEXT.issuperset(atom) for atom in local.split("."))
        and all(map(_is_label, domain.split(".")))
    )
    return None if good else f"is no e-mail address: {_EXAMPLE}"


def is_loopback(host: str) -> bool:
    """Whether it is this machine, by its name or number."""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_number(label: str) -> bool:
    return label.isascii() and label.isdigit()


def _is_label(label: str) -> bool:
    return (
        0 < len(label) <= LABEL_MAX_LETTERS
        and all(letter in _ALNUM or letter in "-_" for letter in label)
        and not label.startswith("-")
        and not label.endswith("-")
    )
