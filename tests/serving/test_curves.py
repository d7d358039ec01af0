"""Curves and surfaces: single values and arrays are read alike."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.serving.curves import Curve, Surface

CURVE = Curve(np.array([1, 4, 64]), np.array([2.0, 3.0, 30.0]))
SURFACE = Surface(np.array([1.0, 8.0]), np.array([16.0, 256.0]), np.array([[1.0, 4.0], [2.0, 20.0]]))


def test_points_of_the_grid_are_kept_and_beyond_it_time_is_in_proportion() -> None:
    assert CURVE([1, 4, 64]) == pytest.approx([2, 3, 30]) and CURVE(128) == pytest.approx(60)
    assert CURVE(0) == 0 and CURVE(0.5) == pytest.approx(2)
    assert SURFACE(8, 16) == pytest.approx(2) and SURFACE(16, 512) == pytest.approx(80) and SURFACE(0, 16) == 0


def test_single_values_are_those_of_arrays() -> None:
    sizes = np.geomspace(0.1, 500, 40)
    assert [float(CURVE(size)) for size in sizes] == pytest.approx(CURVE(sizes).tolist())
    others = np.geomspace(1, 5000, 40)
    one_by_one = [float(SURFACE(a, b)) for a, b in zip(sizes, others, strict=True)]
    assert one_by_one == pytest.approx(SURFACE(sizes, others).tolist())
