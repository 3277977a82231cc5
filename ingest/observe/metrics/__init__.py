# SPDX-License-Identifier: Apache-2.0
"""Metrics: catalogue, instruments, and their updates."""
