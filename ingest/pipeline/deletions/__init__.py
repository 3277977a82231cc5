# SPDX-License-Identifier: Apache-2.0
"""Rows that go without a record of their own: truncates, and what a new snapshot lacks."""
