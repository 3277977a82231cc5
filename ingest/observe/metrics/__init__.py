# SPDX-License-Identifier: Apache-2.0
"""Metrics: their catalogue, their instruments, what sets them."""
