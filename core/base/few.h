// An array on the stack, for what is seldom long.
#pragma once

#include <cstddef>
#include <memory>

namespace quern {

// Elements of which there are seldom more than kUsual: only then it allocates. They have no values yet.
template <class T, size_t kUsual>
class Few {
 public:
  explicit Few(size_t count)
      : more_(count > kUsual ? new T[count] : nullptr), data_(more_ ? more_.get() : usual_) {}
  T& operator[](size_t i) { return data_[i]; }
  T* data() { return data_; }

 private:
  T usual_[kUsual];
  const std::unique_ptr<T[]> more_;
  T* const data_;
};

}  // namespace quern
