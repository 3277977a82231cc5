# SPDX-License-Identifier: Apache-2.0
"""What the daemon tells the outside: logs, metrics, status, HTTP."""
