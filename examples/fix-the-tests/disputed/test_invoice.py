from __future__ import annotations

import unittest

from invoice import as_text, discount, split


class Discount(unittest.TestCase):
    def test_whole_cents(self) -> None:
        self.assertEqual(discount(2000, 10), 200)

    def test_half_a_cent_is_rounded_up(self) -> None:
        self.assertEqual(discount(1990, 5), 100)

    def test_less_than_half_a_cent_is_rounded_down(self) -> None:
        self.assertEqual(discount(1988, 5), 99)


class Split(unittest.TestCase):
    def test_even_bill(self) -> None:
        self.assertEqual(split(900, 3), [300, 300, 300])

    def test_no_cent_is_lost(self) -> None:
        self.assertEqual(sum(split(1000, 3)), 1000)

    def test_nobody_pays_more_than_a_cent_more(self) -> None:
        self.assertEqual(sorted(split(1001, 4)), [250, 250, 250, 251])


class AsText(unittest.TestCase):
    def test_cents_have_two_digits(self) -> None:
        self.assertEqual(as_text(1205), "12.05")


if __name__ == "__main__":
    unittest.main()
