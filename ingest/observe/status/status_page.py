# SPDX-License-Identifier: Apache-2.0
"""The status page: one file, `status_page.html`, with its own style and script, from the package.

Nothing comes from elsewhere, and the browser is told so: scripts and styles are allowed by the hash
of what the file has, connections to this address only.
"""

import base64
import dataclasses
import functools
import hashlib
import importlib.resources
import re

__all__ = ["Page", "status_page"]


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """The page and its content security policy."""

    body: bytes
    policy: str


@functools.cache
def status_page() -> Page:
    """The page; the same for every pipeline."""
    text = (
        importlib.resources.files("ingest.observe.status").joinpath("status_page.html").read_text()
    )
    style, script = (
        " ".join(_hash(each) for each in re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL))
        for tag in ("style", "script")
    )
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(text.encode(), policy)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
