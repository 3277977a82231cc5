# SPDX-License-Identifier: Apache-2.0
"""Stores: the `FileIO` port and what implements it."""
