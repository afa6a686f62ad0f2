"""Inner products of the items of many questions at once, without an n by n table.

A search that replaces one option of a question by every item of the pool needs, for each of the other options, its
inner products with all items: one product of a matrix with a vector, which is cached.
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats, Indices

__all__ = ["ItemProducts"]


_LINES = 1024  # items whose products with all others are cached: bounds the memory
_BLOCK_NUMBERS = 1 << 20  # elements of the rows gathered at once


class ItemProducts:
    """r_i . r_j of rows r, (n, r): with r_i = R x_i these are x_i' (R' R) x_j.

    Args:
        rows: (n, r).
    """

    def __init__(self, rows: Floats) -> None:
        self._rows = rows
        self.norms = np.asarray(np.vecdot(rows, rows))
        self._lines: dict[int, Floats] = {}

    def gram(self, questions: Indices) -> Floats:
        """r_i . r_j of the items of each question, (K, K, m), of questions (m, K)."""
        count, size = questions.shape
        table = np.empty((size, size, count))
        fixed = self._fixed(questions)
        for a in range(size):
            table[a, a] = self.norms[questions[:, a]]
            for b in range(a):
                if fixed[a]:
                    table[a, b] = self._line(int(questions[0, a]))[questions[:, b]]
                elif fixed[b]:
                    table[a, b] = self._line(int(questions[0, b]))[questions[:, a]]
                else:
                    table[a, b] = self._between(questions[:, a], questions[:, b])
                table[b, a] = table[a, b]
        return table

    def differences(self, questions: Indices) -> Floats:
        """The same of the differences to the first option, y_k = r_k - r_0, (K - 1, K - 1, m)."""
        gram = self.gram(questions)
        return np.asarray(gram[1:, 1:] - gram[1:, :1] - gram[:1, 1:] + gram[0, 0])

    def squared_distances(self, questions: Indices) -> Floats:
        """|r_i - r_j|^2 of the items of each question, (K, K, m)."""
        gram = self.gram(questions)
        norms = gram[np.arange(len(gram)), np.arange(len(gram))]
        return np.maximum(norms[:, None] + norms[None] - 2.0 * gram, 0.0)

    def _fixed(self, questions: Indices) -> list[bool]:
        """Which columns hold the same item in all questions, where there are enough for a product with all items."""
        if 8 * len(questions) < len(self._rows):
            return [False] * questions.shape[1]
        return list((questions == questions[0]).all(axis=0))

    def _line(self, item: int) -> Floats:
        if item not in self._lines:
            if len(self._lines) >= _LINES:
                self._lines.pop(next(iter(self._lines)))
            self._lines[item] = np.asarray(self._rows @ self._rows[item])
        return self._lines[item]

    def _between(self, first: Indices, second: Indices) -> Floats:
        values = np.empty(len(first))
        step = max(1, _BLOCK_NUMBERS // max(1, self._rows.shape[1]))
        for begin in range(0, len(first), step):
            part = slice(begin, begin + step)
            values[part] = np.vecdot(self._rows[first[part]], self._rows[second[part]])
        return values
