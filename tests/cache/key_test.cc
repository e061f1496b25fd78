// Key material: parts cannot run into each other, every part counts, and the printed form tells two keys
// apart.
#include "cache/key.h"

#include <set>

#include "tests/support/test.h"

namespace quern {

namespace {

void parts_come_back_in_order(void**) {
  KeyMaterial material;
  material.add("a", "1").add("b", std::string_view("\0\n", 2)).add("a", "");
  const auto parts = parse_key_material(material.bytes());
  assert_ok(parts);
  assert_int_equal(parts->size(), 4);
  assert_true((*parts)[0] == (KeyPart{"epoch", kKeyEpoch}));
  assert_true((*parts)[1] == (KeyPart{"a", "1"}));
  assert_true((*parts)[2] == (KeyPart{"b", std::string_view("\0\n", 2)}));
  assert_true((*parts)[3] == (KeyPart{"a", ""}));
}

void where_a_part_ends_counts(void**) {
  const auto hash = [](std::vector<KeyPart> parts) {
    KeyMaterial material;
    for (const KeyPart& part : parts) material.add(part.tag, part.bytes);
    return material.key();
  };
  const std::set<Hash128> keys = {hash({{"a", "bc"}}),
                                  hash({{"ab", "c"}}),
                                  hash({{"a", "b"}, {"", "c"}}),
                                  hash({{"a", "b"}, {"c", ""}}),
                                  hash({{"a", ""}, {"bc", ""}}),
                                  hash({}),
                                  hash({{"", ""}}),
                                  hash({{"", ""}, {"", ""}})};
  assert_int_equal(keys.size(), 8);
}

void every_part_of_a_plan_key_counts(void**) {
  const std::set<Hash128> keys = {
      plan_key("g", "sm_90a", 0, "nvrtc 13.0").key(), plan_key("h", "sm_90a", 0, "nvrtc 13.0").key(),
      plan_key("g", "sm_90", 0, "nvrtc 13.0").key(),  plan_key("g", "sm_90a", 1, "nvrtc 13.0").key(),
      plan_key("g", "sm_90a", 0, "nvrtc 13.1").key(), request_key("g", "nvrtc 13.0").key(),
      request_key("g", "nvrtc 13.1").key(),           request_key("h", "nvrtc 13.0").key()};
  assert_int_equal(keys.size(), 8);
  assert_true(plan_key("g", "sm_90a", 0, "nvrtc 13.0").key() ==
              plan_key("g", "sm_90a", 0, "nvrtc 13.0").key());
}

void prints_readably(void**) {
  const auto text = print_key_material(plan_key("in x: f16[4]\nout x\n", "sm_90a", 1, "a\\b\x01").bytes());
  assert_ok(text);
  assert_text_equal(*text,
                    "epoch, 8 bytes:\n  quern-35\n"
                    "target, 6 bytes:\n  sm_90a\n"
                    "policy, 10 bytes:\n  0x00000001\n"
                    "toolchain, 4 bytes:\n  a\\x5cb\\x01\n"
                    "graph, 19 bytes:\n  in x: f16[4]\n  out x\n");
}

void refuses_what_is_no_key_material(void**) {
  const std::string whole = plan_key("graph", "sm_90a", 0, "nvrtc").bytes();
  int refused = 0;
  for (size_t size = 0; size < whole.size(); ++size)
    refused += !print_key_material(whole.substr(0, size)).ok();
  // What is cut at the end of one of its five parts is still a list of parts.
  assert_int_equal(refused, whole.size() - 4);
  assert_error(parse_key_material(""), ErrorCode::CORRUPT, "epoch");
  assert_error(parse_key_material(whole + "x"), ErrorCode::CORRUPT, "cut short");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(parts_come_back_in_order),        cmocka_unit_test(where_a_part_ends_counts),
      cmocka_unit_test(every_part_of_a_plan_key_counts), cmocka_unit_test(prints_readably),
      cmocka_unit_test(refuses_what_is_no_key_material),
  };
  return cmocka_run_group_tests_name("cache-key", tests, nullptr, nullptr);
}
