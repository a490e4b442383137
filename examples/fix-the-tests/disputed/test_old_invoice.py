from __future__ import annotations

import unittest

from invoice import discount


class OldDiscount(unittest.TestCase):
    def test_half_a_cent_is_dropped(self) -> None:
        self.assertEqual(discount(1990, 5), 99)


if __name__ == "__main__":
    unittest.main()
