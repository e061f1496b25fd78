// Words of a line: what quoting keeps together.
#include "core/base/words.h"

#include "tests/support/test.h"

namespace quern {

namespace {

using Words = std::vector<std::string>;

void words_are_split_at_blanks_outside_of_quotes(void**) {
  assert_true(*split_words("a  b\tc\r") == Words({"a", "b", "c"}));
  assert_true(*split_words("") == Words());
  assert_true(*split_words("  # only a comment \"") == Words());
  assert_true(*split_words("a b # c") == Words({"a", "b"}));
  assert_true(*split_words("a#b \"c # d\"") == Words({"a#b", "c # d"}));
  assert_true(*split_words("\"my graph.qg\" sm_90a") == Words({"my graph.qg", "sm_90a"}));
  assert_true(*split_words("\"\" x\" y\"z") == Words({"", "x yz"}));
  assert_true(*split_words("it's \\n") == Words({"it's", "\\n"}));
  assert_error(split_words("a \"b"), ErrorCode::INVALID_ARGUMENT, "quote");
}

void quoted_words_read_back(void**) {
  for (const char* word :
       {"plain.qg", "", "a b", "say \"hi\"", "back\\slash", "\\\"", "#1", "a#1", "tab\tin", "it's"}) {
    const auto words = split_words(quoted_word(word) + " next # rest");
    assert_ok(words);
    assert_true(*words == Words({word, "next"}));
  }
  assert_text_equal(quoted_word("plain-1.qg"), "plain-1.qg");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(words_are_split_at_blanks_outside_of_quotes),
      cmocka_unit_test(quoted_words_read_back),
  };
  return cmocka_run_group_tests_name("words", tests, nullptr, nullptr);
}
