# SPDX-License-Identifier: Apache-2.0
"""Statements with their results, as files: `cases/*.yaml`, run by `test_statements.py`."""
