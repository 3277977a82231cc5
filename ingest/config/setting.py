# SPDX-License-Identifier: Apache-2.0
"""One declaration per setting: a field of a frozen dataclass that carries its row as metadata.

    trigger_interval_s: float = setting("pipeline.trigger.interval", duration, default="30s")

What it means is the docstring below the field. From it follow the attribute and its default, the
parsing of files, variables and flags (`loading`), what is shown of its value (`redacted`), the
reference page (`settings_page`) and the JSON Schema (`json_schema`). See docs/adr/ingest/0026.
"""

import ast
import dataclasses
import inspect
import itertools
import re
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ingest.config.setting_kinds import Kind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "HIDDEN",
    "Section",
    "Setting",
    "build",
    "declared",
    "docs",
    "fields_declared",
    "hide",
    "hide_values",
    "redact_properties",
    "redact_urls",
    "redacted",
    "redacted_url",
    "section",
    "setting",
]

_T = TypeVar("_T", bound="DataclassInstance")

HIDDEN = "********"

_SECRET = re.compile(
    r"password|secret|token|\.pem|credential|jaas|basic\.auth|sasl\.oauthbearer\.config", re.I
)
_UNSET: Any = object()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The row of one setting.

    Attributes:
        key: dotted key, as written in YAML.
        kind: its type.
        default: as it would be written in YAML; None = no default (the doc says what then happens).
        unset: typed value where it is not given.
        required: whether a pipeline cannot run without it.
        unit: unit of the number behind it, for the reference.
        doc: one or two sentences for the reference, where they are made by a program; else they
            are the docstring below the field.
        secret: typed value to what may be shown of it; None = all of it.
    """

    key: str
    kind: Kind
    default: Any = None
    unset: Any = None
    required: bool = False
    unit: str = ""
    doc: str = ""
    secret: Callable[[Any], Any] | None = None


def setting(
    key: str,
    kind: Kind,
    *,
    default: Any = None,
    unset: Any = _UNSET,
    required: bool = False,
    unit: str = "",
    doc: str = "",
    secret: Callable[[Any], Any] | None = None,
) -> Any:
    """A field that holds the typed value of a setting; arguments as `Setting` has them.

    Without `unset` a setting that is not given is its default, or the kind's empty value.
    """
    if unset is _UNSET:
        unset = kind.empty if default is None else kind.parse(default)
    row = Setting(
        key=key,
        kind=kind,
        default=default,
        unset=unset,
        required=required,
        unit=unit,
        doc=doc,
        secret=secret,
    )
    return _field(row)


def _field(row: Setting) -> Any:
    metadata = {"setting": row}
    if row.required:
        return dataclasses.field(metadata=metadata)
    if isinstance(row.unset, dict):
        return dataclasses.field(default_factory=row.unset.copy, metadata=metadata)
    return dataclasses.field(default=row.unset, metadata=metadata)


def section(*classes: type, default: Any = dataclasses.MISSING) -> Any:
    """A field whose value is one of such classes, with the settings that they declare."""
    return dataclasses.field(default=default, metadata={"section": classes})


class Section:
    """A frozen dataclass of settings; its `repr` shows no secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in redacted(self).items())
        return f"{type(self).__name__}({shown})"


def fields_declared(cls: type) -> dict[str, Setting]:
    """The settings that a class declares itself, by attribute."""
    return {
        field.name: field.metadata["setting"]
        for field in dataclasses.fields(cls)
        if "setting" in field.metadata
    }


def declared(*classes: type) -> tuple[Setting, ...]:
    """All settings of classes and of their sections, each once, in order of declaration."""
    rows: dict[str, Setting] = {}
    for cls in classes:
        for field in dataclasses.fields(cls):
            if "setting" in field.metadata:
                row = field.metadata["setting"]
                rows.setdefault(row.key, row)
            for row in declared(*field.metadata.get("section", ())):
                rows.setdefault(row.key, row)
    return tuple(rows.values())


def docs(cls: type) -> dict[str, str]:
    """What the settings of a class and of its sections mean, by key; read from the sources."""
    tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    bodies = {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
    texts = {}
    for base in reversed(cls.__mro__):
        body = bodies.get(base.__name__, [])
        for node, after in itertools.pairwise(body):
            if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
                texts[ast.unparse(node.target)] = ast.literal_eval(after.value)
    found = {}
    for field in dataclasses.fields(cls):
        if "setting" in field.metadata:
            row = field.metadata["setting"]
            found[row.key] = row.doc or " ".join(texts.get(field.name, "").split())
        for inner in field.metadata.get("section", ()):
            found |= {key: text for key, text in docs(inner).items() if text}
    return found


def build(cls: type[_T], values: Mapping[str, Any], **others: Any) -> _T:
    """A value of a class, its sections included, from typed values by key.

    Args:
        cls: of the value.
        values: of settings that are given; others are what their rows say.
        others: attributes that follow from more than one setting.
    """
    members = dict(others)
    for field in dataclasses.fields(cls):
        if field.name in others:
            continue
        if "setting" in field.metadata:
            row = field.metadata["setting"]
            members[field.name] = values.get(row.key, row.unset)
        elif "section" in field.metadata:
            members[field.name] = build(field.metadata["section"][0], values)
    return cls(**members)


def redacted(value: Any) -> dict[str, Any]:
    """Attributes as plain values, fit for a log or a status page."""
    return {
        field.name: _redacted(field.metadata.get("setting"), getattr(value, field.name))
        for field in dataclasses.fields(value)
    }


def _redacted(row: Setting | None, value: Any) -> Any:
    if row is not None and row.secret is not None and value:
        value = row.secret(value)
    if dataclasses.is_dataclass(value):
        return redacted(value)
    if isinstance(value, (list, tuple)):
        return [_redacted(None, each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def hide(value: object) -> str:
    """Of a secret: that it is there."""
    return HIDDEN


def hide_values(values: Mapping[str, str]) -> dict[str, str]:
    """Of a map the names."""
    return dict.fromkeys(values, HIDDEN)


def redact_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Of client properties those that are no secrets by their names."""
    return {name: HIDDEN if _SECRET.search(name) else text for name, text in properties.items()}


def redact_urls(urls: Iterable[str]) -> tuple[str, ...]:
    """Of addresses scheme and host each."""
    return tuple(redacted_url(url) for url in urls)


def redacted_url(url: str) -> str:
    """Scheme and host of an address: what follows is the secret of many webhooks."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}/…"
