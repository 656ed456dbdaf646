"""A gate as an engine that samples itself asks for it: `unbraid.engines.base.Constraint`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unbraid.errors import EngineError
from unbraid.gate import Gate


class GateConstraint:
    """`n_vocab`: how many logits the engine has, which may be more than the tokenizer has ids."""

    def __init__(self, gate: Gate, n_vocab: int) -> None:
        self.gate = gate
        self._mask = np.full((1, (n_vocab + 31) // 32), -1, dtype=np.int32)

    def mask(self) -> NDArray[np.int32] | None:
        if not self.gate.restricts:
            return None
        self.gate.fill(self._mask)
        row: NDArray[np.int32] = self._mask[0]
        return row

    def accept(self, id: int) -> None:
        if not self.gate.advance((id,)).accepted and not self.gate.terminated:
            raise EngineError(f"the grammar refuses token {id}, which the mask had allowed")
