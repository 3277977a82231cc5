# SPDX-License-Identifier: Apache-2.0
"""What the image is made of, and that it runs, without a container engine."""
