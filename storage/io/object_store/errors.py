# SPDX-License-Identifier: Apache-2.0
"""What an object store's failures mean to a caller.

The client distinguishes kinds only in part: a listing that is refused arrives as a generic error.
So the HTTP status and the store's own error code are taken from its message, which is also cut
down to one line: the rest repeats the request and may name keys.
"""

import contextlib
import errno
import re
from collections.abc import Iterator

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)

__all__ = ["store_error", "translated"]

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_LONGEST_DETAIL = 400

_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"})
_WRONG_REGION = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_PASSING = frozenset({"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable"})
_REFUSED = frozenset({"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired"})
_PASSING_STATUS = frozenset({408, 425, 429})
_REDIRECTS = frozenset({301, 302, 307, 308})


@contextlib.contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    """Raise what `store_error` makes of the client's errors.

    Args:
        operation: verb for the message, such as "read".
        path: full path of the object.
    """
    try:
        yield
    except (BaseError, FileNotFoundError, ValueError) as error:
        if isinstance(error, InvalidRequestError):  # ours, and a ValueError too
            raise
        raise store_error(operation, path, error) from error


def store_error(operation: str, path: str, error: Exception) -> Exception:
    """The exception that a caller of `FileIO` may expect.

    Returns:
        `FileNotFoundError`, `FileExistsError`, `PermissionError`, or an error of `storage.errors`.
    """
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else None
    code = found[1] if (found := _CODE.search(text)) else ""
    if code in _NO_BUCKET:
        return NotFoundError(
            "there is no such bucket",
            detail=_detail(text),
            hint="make the bucket first, or correct the warehouse",
            path=path,
        )
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if isinstance(error, AlreadyExistsError):
        return FileExistsError(errno.EEXIST, "the object exists", path)
    refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
    if refused or status in (401, 403) or code in _REFUSED:
        advice = "check `s3.access-key`, `s3.secret-key` (or the AWS_… variables) and the policy"
        return PermissionError(
            errno.EACCES, f"the store refused our credentials ({_detail(text)}); {advice}", path
        )
    return _other(operation, path, error, status, code)


def _other(operation: str, path: str, error: Exception, status: int | None, code: str) -> Exception:
    text = str(error)
    if code in _WRONG_REGION or status in _REDIRECTS or "redirect without LOCATION" in text:
        return InvalidRequestError(
            "the bucket is in another region",
            detail=_detail(text),
            hint="set `s3.region` (or AWS_REGION) to the bucket's region",
            path=path,
        )
    if isinstance(error, UnknownConfigurationKeyError):
        return InvalidOptionError("the store does not know an option", detail=_detail(text))
    if isinstance(error, NotSupportedError) or status == 501:
        return UnsupportedFeatureError(
            "the store cannot do this", detail=_detail(text), operation=operation, path=path
        )
    passing = status is None or status >= 500 or status in _PASSING_STATUS or code in _PASSING
    if isinstance(error, ValueError) or not passing:
        return InvalidRequestError(
            f"the store refuses to {operation} an object", detail=_detail(text), path=path
        )
    return StorageUnavailableError(
        f"cannot {operation} an object", detail=_detail(text), hint=_advice(text, status), path=path
    )


def _advice(text: str, status: int | None) -> str:
    if "169.254.169.254" in text or "credential" in text.lower():
        return "no credentials were found: set `s3.access-key` and `s3.secret-key`, or AWS_…"
    if status is None:
        return "check `s3.endpoint` and the network"
    return ""


def _detail(text: str) -> str:
    """One line: what the client says, and of the answer's body its code and message."""
    line = text.partition("\n\nDebug source")[0]
    line = line.partition("<?xml")[0].partition("<Error>")[0]
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        line += f" {code[1]}" + (f": {message[1]}" if message else "")
    return " ".join(line.split())[:_LONGEST_DETAIL]
