// muGraphs as text and as Mirage writes them: what is read prints to something that reads as the same.
#include "core/mugraph/mirage.h"
#include "core/mugraph/text.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quern;
  const std::string_view text = text_of(data, size);
  static_cast<void>(read_mirage(text));
  const auto mugraph = parse_mugraph(text);
  if (!mugraph.ok()) return 0;
  const std::string printed = print_mugraph(*mugraph);
  const auto again = parse_mugraph(printed);
  must(again.ok(), "a printed muGraph can be read");
  must(print_mugraph(*again) == printed, "and prints as before");
  return 0;
}
