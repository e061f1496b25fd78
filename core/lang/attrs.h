// Attributes of operators, made from attrs.def.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/lang/op.h"

namespace quern {

using Ints = std::vector<int64_t>;

enum class AttrId : uint8_t {
#define QUERN_ATTR(name, kind, doc) name,
#include "core/lang/attrs.def"
#undef QUERN_ATTR
};
enum class AttrKind : uint8_t { ints, number, dtype, flag };

constexpr AttrSet attr_bit(AttrId id) { return AttrSet{1} << static_cast<int>(id); }

namespace attr_types {
using ints = Ints;
using number = double;
using dtype = DType;
using flag = bool;
}  // namespace attr_types

// What is given; after shape inference also what is implied, in one normal form: axes ascending from 0, all
// defaults filled in.
struct Attrs {
#define QUERN_ATTR(name, kind, doc) std::optional<attr_types::kind> name;
#include "core/lang/attrs.def"
#undef QUERN_ATTR
  bool operator==(const Attrs&) const = default;

  AttrSet present() const;
};

struct AttrInfo {
  AttrId id;
  const char* name;
  AttrKind kind;
  const char* doc;
};
const AttrInfo* find_attr(std::string_view name);
const AttrInfo& attr_info(AttrId id);

// Calls f(info, member) for every attribute of attrs.def, where member is the std::optional in `attrs`.
template <class A, class F>
void for_each_attr(A& attrs, F f) {
#define QUERN_ATTR(name, kind, doc) f(attr_info(AttrId::name), attrs.name);
#include "core/lang/attrs.def"
#undef QUERN_ATTR
}

// "axis=1, eps=1e-05": the present attributes in the order of attrs.def, as they are written in .qg files.
std::string print_attrs(const Attrs& attrs);
// The shortest text that reads back as the same double: "1", "0.5", "1e-05", "inf", "-inf", "nan".
std::string print_number(double value);
// "[1, 2, 3]"
std::string print_ints(const Ints& ints);

}  // namespace quern
