# SPDX-License-Identifier: Apache-2.0
"""Commits: snapshots published exactly once."""
