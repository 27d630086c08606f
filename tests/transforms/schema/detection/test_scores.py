"""Floors under precision and recall, so that no change makes the detectors worse unseen."""

from __future__ import annotations

import pytest

from tests.transforms.schema.detection.scores import by_both, by_name, by_value, labelled, scores

REAL = [each for each in labelled() if each.origin != "published"]
PUBLISHED = [each for each in labelled() if each.origin == "published"]


@pytest.mark.parametrize(
    ("kind", "precision", "recall"),
    [
        ("email", 0.97, 0.99),
        ("national_id", 0.99, 0.99),
        ("street_address", 0.99, 0.99),
        ("date_of_birth", 0.99, 0.99),
        ("advertising_id", 0.99, 0.99),
        ("ip_address", 0.94, 0.99),
        ("geolocation", 0.99, 0.99),
        ("secret", 0.4, 0.99),
    ],
)
def test_real_fields(kind: str, precision: float, recall: float) -> None:
    score = {str(key): value for key, value in scores(by_both, REAL).items()}[kind]
    assert score.values > 5
    assert (score.precision or 0) >= precision
    assert (score.recall or 0) >= recall


@pytest.mark.parametrize(("kind", "recall"), [("email", 0.97), ("ip_address", 0.98)])
def test_values_of_real_fields_without_their_names(kind: str, recall: float) -> None:
    score = {str(key): value for key, value in scores(by_value, REAL).items()}[kind]
    assert (score.recall or 0) >= recall


@pytest.mark.parametrize(
    ("kind", "recall"),
    [
        ("phone", 0.9),
        ("payment_card", 1.0),
        ("bank_account", 0.9),
        ("national_id", 0.75),
        ("street_address", 0.85),
        ("geolocation", 0.75),
        ("secret", 0.65),
    ],
)
def test_published_examples(kind: str, recall: float) -> None:
    score = {str(key): value for key, value in scores(by_value, PUBLISHED).items()}[kind]
    assert (score.recall or 0) >= recall
    assert score.precision == 1


def test_few_harmless_values_are_sealed() -> None:
    harmless = [each for each in REAL if each.kind is None]
    assert len(harmless) == 3985
    assert sum(by_both(each) is not None for each in harmless) <= 30


def test_a_path_without_words_reports_nothing() -> None:
    assert all(by_name(each) is None for each in PUBLISHED)
