# SPDX-License-Identifier: Apache-2.0
"""Executors as pods, with an API server and a kubelet of our own: no cluster, real executors."""
