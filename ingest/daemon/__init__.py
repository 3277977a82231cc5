# SPDX-License-Identifier: Apache-2.0
"""The daemon: starts, supervises and ends the streaming query, maintains tables beside it."""
