# SPDX-License-Identifier: Apache-2.0
"""Inside a container: its two roles, what it may use of the machine, executors as pods."""
