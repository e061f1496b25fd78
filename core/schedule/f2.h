// Linear algebra over F2, the field of two elements: vectors are the bits of a uint64_t, addition is XOR.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quern {

// A linear map: columns[i] is the image of bit i. At most 64 rows and 64 columns.
struct F2Matrix {
  int rows = 0;
  std::vector<uint64_t> columns;

  uint64_t apply(uint64_t x) const;
  bool operator==(const F2Matrix&) const = default;
};

F2Matrix f2_identity(int size);
int f2_rank(std::span<const uint64_t> vectors);
// The x with a x = b that uses the earliest columns of `a`; nothing if a column of `b` is outside the range.
std::optional<F2Matrix> f2_solve(const F2Matrix& a, const F2Matrix& b);
// A basis of {x : a x = 0}.
std::vector<uint64_t> f2_kernel(const F2Matrix& a);
// A basis of span(a) & span(b).
std::vector<uint64_t> f2_intersection(std::span<const uint64_t> a, std::span<const uint64_t> b);

// A subspace grown vector by vector, which remembers how each of its members is made.
class F2Span {
 public:
  F2Span() = default;
  explicit F2Span(std::span<const uint64_t> vectors) { add_all(vectors); }

  // Vectors are numbered by the order of the calls; false if `v` was inside already (it still has a number).
  bool add(uint64_t v);
  void add_all(std::span<const uint64_t> vectors);
  bool contains(uint64_t v) const { return reduce(v).vector == 0; }
  // The sum of added vectors that gives `v`, as a mask of their numbers (at most 64 are kept track of).
  std::optional<uint64_t> express(uint64_t v) const;
  int dim() const { return static_cast<int>(rows_.size()); }

 private:
  struct Row {
    uint64_t vector;
    uint64_t made_of;
  };
  Row reduce(uint64_t v) const;

  std::vector<Row> rows_;  // leading bits are distinct
  int added_ = 0;
};

}  // namespace quern
