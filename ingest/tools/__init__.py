# SPDX-License-Identifier: Apache-2.0
"""Tools that the daemon never imports."""
