# SPDX-License-Identifier: Apache-2.0
"""What may happen to a table: a module per story, each with its HISTORIES by name.

A module put here is run by `tests/crash/test_crashes.py`.
"""
