# SPDX-License-Identifier: Apache-2.0
"""One declaration per setting: a field of a frozen dataclass with a `Setting` as metadata.

    trigger_interval_s: float = setting("pipeline.trigger.interval", duration, default="30s")

The docstring below the field is its documentation. The declaration determines the attribute and its
default, the parsing of files, variables and flags (`loading`), redaction (`redacted`), the
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

_T = TypeVar("_T", bound="DataclassInstance")

REDACTED = "********"

_SECRET = re.compile(
    r"password|secret|token|\.pem|credential|jaas|basic\.auth|sasl\.oauthbearer\.config", re.I
)
_UNSET: Any = object()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Declaration of one setting.

    Attributes:
        key: dotted key, as in YAML.
        kind: type of the value.
        default: default as in YAML; None = no default (the documentation says what applies).
        unset: typed value if the setting is not given.
        required: whether a value is required.
        unit: unit of the number, for the reference.
        doc: generated documentation; empty: the docstring below the field.
        secret: redacts a typed value for display; None = nothing to redact.
    """

    key: str
    kind: Kind
    default: Any = None
    unset: Any = None
    required: bool = False
    unit: str = ""
    doc: str = ""
    secret: Callable[[Any], Any] | None = None


def setting(key: str, kind: Kind, *, unset: Any = _UNSET, **details: Any) -> Any:
    """Declare a field with the typed value of a setting; arguments are those of `Setting`.

    `unset` defaults to the default of the setting, or to the empty value of its kind.
    """
    row = Setting(key=key, kind=kind, unset=unset, **details)
    if unset is _UNSET:
        unset = kind.empty if row.default is None else kind.parse(row.default)
        row = dataclasses.replace(row, unset=unset)
    metadata = {"setting": row}
    if row.required:
        return dataclasses.field(metadata=metadata)
    if isinstance(unset, dict):
        return dataclasses.field(default_factory=unset.copy, metadata=metadata)
    return dataclasses.field(default=unset, metadata=metadata)


def section(*classes: type, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field whose value is an instance of one of these classes, with their settings."""
    return dataclasses.field(default=default, metadata={"section": classes})


class Section:
    """A frozen dataclass of settings; its `repr` shows no secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in redacted(self).items())
        return f"{type(self).__name__}({values})"


def fields_declared(cls: type) -> dict[str, Setting]:
    """Return the settings that a class itself declares, by attribute."""
    return {
        field.name: field.metadata["setting"]
        for field in dataclasses.fields(cls)
        if "setting" in field.metadata
    }


def declared(*classes: type) -> tuple[Setting, ...]:
    """Return all settings of classes and their sections, without duplicates, in order."""
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
    """Return the documentation of the settings of a class and its sections, by key."""
    tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    bodies = {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
    texts = {}
    for base in reversed(cls.__mro__):
        body = bodies.get(base.__name__, [])
        for node, after in itertools.pairwise(body):
            if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
                texts[ast.unparse(node.target)] = ast.literal_eval(after.value)
    texts_by_key = {}
    for field in dataclasses.fields(cls):
        if "setting" in field.metadata:
            row = field.metadata["setting"]
            texts_by_key[row.key] = row.doc or " ".join(texts.get(field.name, "").split())
        for inner in field.metadata.get("section", ()):
            texts_by_key |= {key: text for key, text in docs(inner).items() if text}
    return texts_by_key


def build(cls: type[_T], values: Mapping[str, Any], **derived: Any) -> _T:
    """Build an instance of a class and its sections from typed values by key.

    Args:
        cls: class to build.
        values: typed values of given settings; others have their `unset` value.
        derived: attributes derived from more than one setting.
    """
    members = dict(derived)
    for field in dataclasses.fields(cls):
        if field.name in derived:
            continue
        if "setting" in field.metadata:
            row = field.metadata["setting"]
            members[field.name] = values.get(row.key, row.unset)
        elif "section" in field.metadata:
            members[field.name] = build(field.metadata["section"][0], values)
    return cls(**members)


def redacted(value: Any) -> dict[str, Any]:
    """Return attributes as plain values without secrets, for a log or a status page."""
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
        return [_redacted(None, item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def hide(value: object) -> str:
    """Redact a secret completely."""
    return REDACTED


def hide_values(values: Mapping[str, str]) -> dict[str, str]:
    """Redact the values of a map."""
    return dict.fromkeys(values, REDACTED)


def redact_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Redact client properties whose names are those of secrets."""
    return {name: REDACTED if _SECRET.search(name) else text for name, text in properties.items()}


def redact_urls(urls: Iterable[str]) -> tuple[str, ...]:
    """Reduce addresses to scheme and host."""
    return tuple(redacted_url(url) for url in urls)


def redacted_url(url: str) -> str:
    """Reduce an address to scheme and host: the rest is the secret of many webhooks."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}/…"
