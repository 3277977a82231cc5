# SPDX-License-Identifier: Apache-2.0
"""Observability of the daemon: metrics, status, HTTP, webhooks."""
