# SPDX-License-Identifier: Apache-2.0
"""Clients of metastores and catalog servers."""
