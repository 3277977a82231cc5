# SPDX-License-Identifier: Apache-2.0
"""Replay of quarantined records after a fix, in the correct order."""
