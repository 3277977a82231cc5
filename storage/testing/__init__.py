# SPDX-License-Identifier: Apache-2.0
"""Aids for tests of tables: faulty stores, invariants, differences and replays of changelogs."""
