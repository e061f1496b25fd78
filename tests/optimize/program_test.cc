// Lists of programs: what goes in comes out, and nothing else is taken for one.
#include "core/optimize/program.h"

#include "tests/support/test.h"

namespace {

using namespace quern;

std::vector<Program> some_programs() {
  return {{"", "", 7000, "baseline's code"},
          {"mugraph a", "kernel grid=[1, 1, 1, 1]", 5000, std::string("\0code", 5)},
          {"mugraph a", "kernel grid=[2, 1, 1, 1]", 6000, ""},
          {"mugraph b", "kernel grid=[2, 1, 1, 1]", 6500, ""}};
}

void what_is_encoded_is_decoded(void**) {
  for (const auto& programs : {some_programs(), std::vector<Program>()}) {
    auto again = decode_programs(encode_programs(programs));
    assert_ok(again);
    assert_true(*again == programs);
  }
}

void a_mugraph_is_stored_once(void**) {
  std::vector<Program> programs = some_programs();
  programs[1].mugraph = programs[2].mugraph = std::string(10000, 'a');
  assert_true(encode_programs(programs).size() < 11000);
}

void damage_is_refused(void**) {
  const std::string bytes = encode_programs(some_programs());
  for (size_t size = 0; size < bytes.size(); ++size)
    assert_error(decode_programs(bytes.substr(0, size)), ErrorCode::CORRUPT);
  assert_error(decode_programs(bytes + "x"), ErrorCode::CORRUPT);
  // Whatever is changed is refused, or makes another list: the record's checksum is for that.
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 0x41);
    const auto programs = decode_programs(other);
    assert_true(!programs.ok() || !(*programs == some_programs()));
  }
}

void names_tell_programs_apart(void**) {
  const std::vector<Program> programs = some_programs();
  for (size_t a = 0; a < programs.size(); ++a)
    for (size_t b = 0; b < programs.size(); ++b)
      assert_true((programs[a].name() == programs[b].name()) == (a == b));
  Program compiled = programs[2];
  compiled.plan = "code";
  assert_true(compiled.name() == programs[2].name());
  assert_true(programs[0].is_baseline() && !programs[1].is_baseline());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_encoded_is_decoded),
      cmocka_unit_test(a_mugraph_is_stored_once),
      cmocka_unit_test(damage_is_refused),
      cmocka_unit_test(names_tell_programs_apart),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
