#include "core/schedule/f2.h"

#include <bit>

#include "core/base/status.h"

namespace quern {

uint64_t F2Matrix::apply(uint64_t x) const {
  check(columns.size() == 64 || x >> columns.size() == 0,
        "the vector has more bits than the map has columns");
  uint64_t y = 0;
  for (; x != 0; x &= x - 1) y ^= columns[std::countr_zero(x)];
  return y;
}

F2Matrix f2_identity(int size) {
  F2Matrix result{size, {}};
  for (int i = 0; i < size; ++i) result.columns.push_back(uint64_t{1} << i);
  return result;
}

int f2_rank(std::span<const uint64_t> vectors) { return F2Span(vectors).dim(); }

std::optional<F2Matrix> f2_solve(const F2Matrix& a, const F2Matrix& b) {
  F2Span range(a.columns);
  F2Matrix result{static_cast<int>(a.columns.size()), {}};
  for (uint64_t column : b.columns) {
    std::optional<uint64_t> x = range.express(column);
    if (!x) return std::nullopt;
    result.columns.push_back(*x);
  }
  return result;
}

std::vector<uint64_t> f2_kernel(const F2Matrix& a) {
  std::vector<uint64_t> kernel;
  F2Span range;
  for (size_t i = 0; i < a.columns.size(); ++i) {
    if (std::optional<uint64_t> x = range.express(a.columns[i])) kernel.push_back(*x | uint64_t{1} << i);
    range.add(a.columns[i]);
  }
  return kernel;
}

std::vector<uint64_t> f2_intersection(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  // With independent vectors on both sides, the dependencies between the sides are the common members.
  F2Span only_a, both;
  std::vector<uint64_t> basis, common;
  for (uint64_t v : a)
    if (only_a.add(v)) basis.push_back(v);
  both.add_all(basis);
  F2Span only_b;
  for (uint64_t v : b) {
    if (!only_b.add(v)) continue;
    if (std::optional<uint64_t> made_of = both.express(v)) {
      uint64_t member = 0;
      for (size_t i = 0; i < basis.size(); ++i)
        if (*made_of >> i & 1) member ^= basis[i];
      common.push_back(member);
    }
    both.add(v);
  }
  return common;
}

bool F2Span::add(uint64_t v) {
  check(added_ < 64, "a span keeps track of at most 64 vectors");
  Row row = reduce(v);
  row.made_of |= uint64_t{1} << added_++;
  if (row.vector == 0) return false;
  rows_.push_back(row);
  return true;
}

void F2Span::add_all(std::span<const uint64_t> vectors) {
  for (uint64_t v : vectors) add(v);
}

std::optional<uint64_t> F2Span::express(uint64_t v) const {
  Row row = reduce(v);
  if (row.vector != 0) return std::nullopt;
  return row.made_of;
}

F2Span::Row F2Span::reduce(uint64_t v) const {
  // Rows are in order of insertion and each is reduced by those before it, so one pass in that order is
  // enough: a row never has the leading bit of an earlier row.
  Row result{v, 0};
  for (const Row& row : rows_)
    if (result.vector & std::bit_floor(row.vector)) {
      result.vector ^= row.vector;
      result.made_of ^= row.made_of;
    }
  return result;
}

}  // namespace quern
