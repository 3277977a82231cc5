# SPDX-License-Identifier: Apache-2.0
"""What `lakeward` can be told: one module for each family of commands, and what they share."""
