# SPDX-License-Identifier: Apache-2.0
"""Texts of floating-point numbers against what Java 17 printed."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format.metadata.layout import java_double_text, java_float_text

DOUBLES = """\
17a0000000000000 6.8494042156512595E-195
3620000000000000 5.4738221262688167E-48
3900000000000000 3.8518598887744717E-34
3eada694e3d71c5d 8.8366E-7
3f192a737110e454 9.6E-5
3f3966d952ed0cde 3.876E-4
4008000000000000 3.0
4380000000000000 1.44115188075855872E17
438672b9069858cc 2.02194831769540992E17
438b5093b130516f 2.46029428298755552E17
438fffffffffffff 2.88230376151711712E17
4390c25d661c1752 3.0190758580701299E17
43bd9c5d84e9d18c 2.13368314890666291E18
4456a1f9f5fd7d96 1.67E21
4470a2bf029b4800 4.910000000000001E21
44743a264a9959a0 5.969999999999999E21
449a420db02bd7d6 3.1000000000000002E22
44d1c9a62d04ed0c 3.3599999999999997E23
44d7edbe05b45745 4.52E23
45afdc0037090cf1 4.9300000000000003E27
5f60000000000000 2.6187124863169135E151
68fe2476e6280113 5.6329457325451615E197
6a7acf7885f10e9a 8.405835631216888E204
6e30000000000000 5.7835805874344294E222
7c50000000000000 6.2370009672959994E290
878c2e7015c3b48d -2.6046925199064992E-272
ac4c5d372b0c1d28 -2.6558328840221384E-95
c36c58541e507c62 -6.3827341255893776E16
c39f4b3853f2bb40 -5.6373949290871603E17
c3a699ee5b68e7cb -8.1429740832030042E17
c3a96fbc3eb861d8 -9.1644527546524774E17
c3ab174a5ed022a1 -9.7605536728385549E17
c3b660f69f8d72d0 -1.61255983173198234E18
c3bc353023c1cdf6 -2.03258373696113613E18
c3c16327faa901bd -2.5057781577398011E18
c3cc10ae9b80ecc0 -4.0446164311910318E18
c3de4bade7aa3644 -8.7321186195834839E18
ece2aad9dbc4de8f -3.217587937799514E216
efab51f75a9e34b6 -8.284194262341361E229
fdc4c5810fc61f0f -6.792249038452772E297"""
FLOATS = """\
15ccbd44 8.269355E-26
2f12f5a1 1.3365888E-10
3e90584e 0.2819237
43aa8000 341.0
4550f19a 3343.1
45823800 4167.0
46a2b800 20828.0
4d5538d5 2.23579472E8
4d8dba66 2.97225408E8
4e396a86 7.7769152E8
4eddcb25 1.86053901E9
4f5cc1ed 3.70369664E9
500569b8 8.9531924E9
53d6d886 1.84551132E12
5404bc6c 2.28038751E12
56fadcdf 1.37913271E14
5758bc30 2.38302771E14
57b18d97 3.90443364E14
58635fa9 9.9999999E14
5e9d2868 5.6622078E18
5ed59425 7.6949833E18
7a125ca8 1.8998866E35
87334e3b -1.3489453E-34
91f81c2a -3.9144858E-28
af3e6e6b -1.7319628E-10
c1400000 -12.0
c7a1a0aa -82753.33
c86390c0 -233027.0
c9b55e80 -1485776.0
cd423309 -2.03632784E8
cd602543 -2.35033648E8
cdb31a59 -3.75606048E8
ce6bcade -9.8898522E8
cfe25f4f -7.5957939E9
d2821a8c -2.79395566E11
d77c1c76 -2.77199169E14
d8cd544a -1.80609522E15
d8cf54ca -1.82370459E15
d97124ae -4.24223745E15
de892170 -4.9406511E18"""


@pytest.mark.parametrize("line", DOUBLES.split("\n"))
def test_doubles_as_java_prints_them(line: str) -> None:
    bits, text = line.split()
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert java_double_text(value) == text


@pytest.mark.parametrize("line", FLOATS.split("\n"))
def test_floats_as_java_prints_them(line: str) -> None:
    bits, text = line.split()
    (value,) = struct.unpack(">f", bytes.fromhex(bits))
    assert java_float_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0.0"), (-0.0, "-0.0"), (math.nan, "NaN"), (-math.inf, "-Infinity")),
        *((100.0, "100.0"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (1e10, "1.0E10")),
        *((1e-3, "0.001"), (9.99e-4, "9.99E-4"), (2e-3, "0.002"), (1e-5, "1.0E-5")),
        (5e-324, "4.9E-324"),
    ],
)
def test_well_known_forms(value: float, text: str) -> None:
    assert java_double_text(value) == text


@given(st.floats(allow_nan=False))
def test_the_text_is_the_number(value: float) -> None:
    assert float(java_double_text(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_text_is_the_float(value: float) -> None:
    (again,) = struct.unpack("<f", struct.pack("<f", float(java_float_text(value))))
    assert again == value
