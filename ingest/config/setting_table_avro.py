# SPDX-License-Identifier: Apache-2.0
"""Rows of the settings table for events in Avro: `source.schema.registry.*`, `source.avro.*`."""

from ingest.config.setting_kinds import Setting, choice, duration, text, text_list

__all__ = ["AVRO_SETTINGS"]

AVRO_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="source.schema.registry.url",
        kind=text_list,
        doc="Addresses of a schema registry that speaks Confluent's API; of several equal servers "
        "the first that answers counts. Required for the Avro formats, refused for others. For "
        "Apicurio the address ends with `/apis/ccompat/v7`.",
    ),
    Setting(
        key="source.schema.registry.basic.auth",
        kind=text,
        doc="`user:password` for the registry. Take it from `${file:/path}`.",
    ),
    Setting(
        key="source.schema.registry.bearer.token",
        kind=text,
        doc="Token for the registry, instead of `basic.auth`. Take it from `${file:/path}`.",
    ),
    Setting(
        key="source.schema.registry.ssl.ca.location",
        kind=text,
        doc="PEM file of the authorities that may vouch for the registry; default the system's. "
        "Files are read by every process that decodes, so on a cluster they are on every machine.",
    ),
    Setting(
        key="source.schema.registry.ssl.certificate.location",
        kind=text,
        doc="PEM file of the certificate to show to the registry.",
    ),
    Setting(
        key="source.schema.registry.ssl.key.location",
        kind=text,
        doc="PEM file of its key; default: it is in the certificate's file.",
    ),
    Setting(
        key="source.schema.registry.ssl.key.password",
        kind=text,
        doc="Password of the key. Take it from `${file:/path}`.",
    ),
    Setting(
        key="source.schema.registry.timeout",
        kind=duration,
        doc="How long one answer of the registry may take. Default: `10s`.",
    ),
    Setting(
        key="source.schema.registry.retry.for",
        kind=duration,
        doc="How long a registry that does not answer is asked again before the batch fails and "
        "the query is started again; nothing is lost meanwhile. Default: `60s`.",
    ),
    Setting(
        key="source.avro.schema.id.bytes",
        kind=choice("4", "8"),
        doc="Bytes of the schema id before an Avro value: 4 in Confluent's format (default), 8 in "
        "Apicurio's own. Ids in headers are recognised without being told.",
    ),
)
