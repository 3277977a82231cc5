# SPDX-License-Identifier: Apache-2.0
"""Failure drills: a running daemon, a fault, and what must be seen and hold afterwards."""
