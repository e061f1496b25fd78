// Which memory the operands of larger functions of the prelude are.
#pragma once

#include "core/kernel/expr.h"
#include "core/kernel/ranges.h"

namespace quern::proof {

// Eight rows of an operand of wgmma, as device/wgmma.cuh has them: of row_bytes each, behind the operand's
// first.
struct Panel {
  int64_t row_bytes, offset;
};
inline std::vector<Panel> panels_of(const ir::TemplateArgs& operand, int64_t extent) {
  const int64_t row = operand[0].number, panel = operand[2].number, step = operand[3].number;
  const bool turned = operand[1].number;
  const int64_t along = turned ? (extent * 2 + row - 1) / row : 1, down = turned ? 2 : extent / 8;
  std::vector<Panel> out;
  for (int64_t i = 0; i < along * down; ++i) out.push_back({row, i / down * panel + i % down * step});
  return out;
}

// A matrix that multiply_tile reads: rows or columns of so many chunks of `vector` neighbours.
struct OperandShape {
  int64_t outer = 0, chunks = 0, vector = 1, outer_stride = 0, inner_stride = 0;  // elements
};
// Of operand 0 or 1, a StridedMatrix.
inline OperandShape operand_shape(const ir::TemplateArg& tile, int operand, const ir::ExprNode& matrix) {
  auto number = [&](size_t i) { return matrix.operands[i]->number; };
  const size_t stages = ir::tile_stages_at(tile), at = stages + 1 + 2 * static_cast<size_t>(operand);
  const bool columns_inner = stages == 0 || tile.of[at + 1].number;
  OperandShape out;
  out.vector = stages > 0 ? tile.of[at].number : 1;
  out.outer = number(columns_inner ? 1 : 2);
  out.chunks = (number(columns_inner ? 2 : 1) + out.vector - 1) / out.vector;
  out.outer_stride = number(columns_inner ? 3 : 4);
  out.inner_stride = number(columns_inner ? 4 : 3);
  return out;
}

}  // namespace quern::proof
