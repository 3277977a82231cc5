# SPDX-License-Identifier: Apache-2.0
"""Metadata files of a table: schemas, snapshots, tags, manifests, and where they lie."""
