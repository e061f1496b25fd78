#include "core/lang/attrs.h"

#include <charconv>
#include <cmath>
#include <type_traits>

namespace quern {

namespace {

constexpr AttrInfo kAttrs[] = {
#define QUERN_ATTR(name, kind, doc) {AttrId::name, #name, AttrKind::kind, doc},
#include "core/lang/attrs.def"
#undef QUERN_ATTR
};

std::string print_value(const Ints& ints) { return print_ints(ints); }
std::string print_value(double number) { return print_number(number); }
std::string print_value(DType dtype) { return dtype_name(dtype); }
std::string print_value(bool flag) { return flag ? "true" : "false"; }

}  // namespace

const AttrInfo* find_attr(std::string_view name) {
  for (const AttrInfo& attr : kAttrs)
    if (name == attr.name) return &attr;
  return nullptr;
}

const AttrInfo& attr_info(AttrId id) { return kAttrs[static_cast<size_t>(id)]; }

AttrSet Attrs::present() const {
  AttrSet set = 0;
  for_each_attr(*this, [&](const AttrInfo& info, const auto& value) {
    if (value) set |= attr_bit(info.id);
  });
  return set;
}

std::string print_attrs(const Attrs& attrs) {
  std::string text;
  for_each_attr(attrs, [&](const AttrInfo& info, const auto& value) {
    if (!value) return;
    if (!text.empty()) text += ", ";
    text += info.name;
    text += '=';
    text += print_value(*value);
  });
  return text;
}

std::string print_number(double value) {
  if (std::isnan(value)) return "nan";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

std::string print_ints(const Ints& ints) {
  std::string text = "[";
  for (size_t i = 0; i < ints.size(); ++i) text += (i ? ", " : "") + std::to_string(ints[i]);
  return text + "]";
}

}  // namespace quern
