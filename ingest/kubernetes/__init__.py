# SPDX-License-Identifier: Apache-2.0
"""Containers: the two roles of the image, resource limits, executors as pods."""
