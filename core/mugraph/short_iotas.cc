#include "core/mugraph/short_iotas.h"

namespace quern {

void ShortIotas::add(const Attrs& iota, const Cuts& cuts) {
  dtypes.push_back(iota.dtype.value_or(DType::i32));
  const Ints& shape = *iota.shape;
  const size_t axis = iota.axis ? static_cast<size_t>((*iota.axis)[0]) : 0;
  int64_t count = 1, inner = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    count *= shape[d];
    if (d > axis) inner *= shape[d];
  }
  std::vector<double>&along = in_strides.emplace_back(), &next = by_one.emplace_back();
  for (int64_t at = 0; at < count; ++at) {
    const int64_t index = at / inner % shape[axis];
    size_t part = 0;
    while (index >= cuts.now[part + 1]) ++part;
    const int64_t first = cuts.before[part], inside = index - cuts.now[part];
    const int64_t before = cuts.before[part + 1] - first, now = cuts.now[part + 1] - cuts.now[part];
    along.push_back(static_cast<double>(first + inside * before / now));
    next.push_back(static_cast<double>(first + inside));
  }
}

}  // namespace quern
