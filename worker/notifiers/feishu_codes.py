"""What Feishu's answers mean: its codes, the causes they stand for, and words for people.

Source: the vendor's pages and public reports. A code that isn't here is an answer that
was not understood: the message may have gone out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from worker.models import FailureCause
from worker.notifiers.base import SendFailedError
from worker.notifiers.http import REDIRECTS, SERVER_ERRORS, TOO_MANY, redirected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.notifiers.http import Answer

_CODE_MAX: Final = 2**31
MALFORMED_OR_TOO_MANY: Final = 9499
TOKEN_REFUSED: Final = 99991663
CARD_NOT_BUILT: Final = 230099

# A custom bot's; all come with HTTP 200, but some 9499 with 400.
WEBHOOK_CODES: Final[Mapping[int, tuple[FailureCause, str]]] = {
    2200: (FailureCause.SERVER_ERROR, "an internal error of the service"),
    9499: (FailureCause.REJECTED, "the request is malformed"),
    11232: (FailureCause.RATE_LIMITED, "too many requests, or the system is under pressure"),
    19001: (FailureCause.BOT_REMOVED, "the bot was removed, or its address is wrong"),
    19002: (FailureCause.REJECTED, "the service finds a fault in the card"),
    19021: (
        FailureCause.BAD_SIGNATURE,
        "the signature is wrong: the secret is another one, or the clock is over an hour off",
    ),
    19022: (FailureCause.ADDRESS_REFUSED, "this machine's address is not on the bot's list"),
    19024: (FailureCause.KEYWORD_MISSING, "a keyword of the bot is missing from the message"),
    19036: (FailureCause.TOO_LARGE, "the message is too large"),
}

# For the request of a token.
TOKEN_CODES: Final[Mapping[int, tuple[FailureCause, str]]] = {
    2200: (FailureCause.SERVER_ERROR, "an internal error of the service"),
    10003: (FailureCause.LOGIN_REFUSED, "the app's id or secret is malformed"),
    10014: (FailureCause.LOGIN_REFUSED, "there is no app of that id and secret"),
    99991400: (FailureCause.RATE_LIMITED, "too many requests"),
    99991401: (FailureCause.ADDRESS_REFUSED, "this machine's address is not on the app's list"),
}

# An app's messages; mostly with HTTP 400.
APP_CODES: Final[Mapping[int, tuple[FailureCause, str]]] = {
    2200: (FailureCause.SERVER_ERROR, "an internal error of the service"),
    230001: (FailureCause.REJECTED, "a parameter is wrong: check receive_id and receive_id_type"),
    230002: (FailureCause.BOT_REMOVED, "the bot is not in the group: add it there"),
    230006: (FailureCause.NO_PERMISSION, "the app has no bot: enable its bot ability"),
    230013: (FailureCause.NO_PERMISSION, "the person is outside the app's availability, or left"),
    230018: (FailureCause.NO_PERMISSION, "the group's settings forbid the bot to send"),
    230020: (FailureCause.RATE_LIMITED, "too many messages to this group or person"),
    230022: (FailureCause.CONTENT_REFUSED, "the content was found sensitive"),
    230025: (FailureCause.TOO_LARGE, "the message is too large"),
    230027: (FailureCause.NO_PERMISSION, "the app lacks a permission for this"),
    230028: (
        FailureCause.CONTENT_REFUSED,
        "the organisation's audit refuses the content, such as an e-mail address in it",
    ),
    230034: (FailureCause.BOT_REMOVED, "there is nobody with this receive_id"),
    230035: (FailureCause.NO_PERMISSION, "the bot is muted in the group"),
    230049: (FailureCause.UNKNOWN_ANSWER, "the message is being sent already"),
    230053: (FailureCause.BOT_REMOVED, "the person has blocked the bot"),
    230099: (FailureCause.REJECTED, "the card could not be built"),
    232009: (FailureCause.BOT_REMOVED, "the group was dissolved"),
    99991400: (FailureCause.RATE_LIMITED, "too many requests"),
    99991401: (FailureCause.ADDRESS_REFUSED, "this machine's address is not on the app's list"),
    # No permission, as it is final: the month's calls won't come back within a day.
    99991403: (FailureCause.NO_PERMISSION, "the organisation's calls of this month are used up"),
    99991661: (FailureCause.LOGIN_REFUSED, "no token came with the request"),
    99991663: (FailureCause.LOGIN_REFUSED, "the token is refused, a new one too"),
    99991664: (FailureCause.LOGIN_REFUSED, "the app's token is refused"),
    99991668: (FailureCause.LOGIN_REFUSED, "the token is refused as a person's"),
    99991671: (FailureCause.LOGIN_REFUSED, "the token is of another kind"),
    99991672: (FailureCause.NO_PERMISSION, "the app lacks a scope: im:message:send_as_bot"),
    99992402: (FailureCause.REJECTED, "a field of the request is wrong: check receive_id"),
}

# Inside the text that comes with 230099.
_CARD_FAULTS: Final[Mapping[int, str]] = {
    11310: "it has too many elements",
    100290: "it names a person who is not there",
    200570: "it has an image that is not there",
    200621: "its JSON is wrong",
    200861: "it has an element that cards of this version don't know",
}
_CARD_FAULT: Final = re.compile(r"ErrCode: ?(\d{1,9})\b", re.ASCII)


def read_code(answer: dict[str, Any]) -> int | None:
    """`code`, else the older `StatusCode`; None where neither is a number to go by."""
    for key in ("code", "StatusCode"):
        code = answer.get(key)
        if isinstance(code, int) and not isinstance(code, bool) and abs(code) <= _CODE_MAX:
            return code
    return None


def failure(
    answer: Answer, codes: Mapping[int, tuple[FailureCause, str]], setting: str = "url"
) -> SendFailedError:
    """The error for an answer that confirms nothing: its cause, and what it means in words.

    Of what the service wrote only numbers are kept. `setting` is where the address was set.
    """
    value = answer.json_object()
    code = read_code(value)
    if code is None and answer.status in REDIRECTS:
        return redirected(answer.status, setting)
    if code is None:
        cause, words = FailureCause.UNKNOWN_ANSWER, ""
        detail = f"HTTP {answer.status} without a code"
    else:
        cause, words = codes.get(code, (FailureCause.UNKNOWN_ANSWER, ""))
        detail = f"HTTP {answer.status}, code {code}"
        text = str(value.get("msg", ""))
        if code == MALFORMED_OR_TOO_MANY and "too many" in text.lower():
            cause, words = FailureCause.RATE_LIMITED, "too many requests"
        if code == CARD_NOT_BUILT and (found := _CARD_FAULT.search(text)):
            words += f" ({found[1]}: {_CARD_FAULTS.get(int(found[1]), 'not known')})"
    if answer.status == TOO_MANY:
        cause = FailureCause.RATE_LIMITED
    elif answer.status >= SERVER_ERRORS:
        cause = FailureCause.SERVER_ERROR
    return SendFailedError(cause, f"{detail}: {words}" if words else detail)
