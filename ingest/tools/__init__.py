# SPDX-License-Identifier: Apache-2.0
"""Tools beside the daemon, which never imports them."""
