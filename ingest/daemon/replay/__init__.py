# SPDX-License-Identifier: Apache-2.0
"""Replay: records of the quarantine table brought in after a fix, in the right order."""
