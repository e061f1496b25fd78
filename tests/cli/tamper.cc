// tamper DIRECTORY KEY PART: changes what a cache holds of a plan, with whole records around it, as a bug or
// a stranger would. PART is mugraph, schedule, cuda or certificate.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cache/store.h"

using namespace quern;

namespace {

[[noreturn]] void give_up(const std::string& message) {
  std::fprintf(stderr, "tamper: %s\n", message.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) give_up(result.status().message());
  return std::move(*result);
}

KeyMaterial material_of(const StoredPlan& stored) {
  KeyMaterial material;
  for (const KeyPart& part : must(parse_key_material(stored.material)))
    if (part.tag != "epoch") material.add(part.tag, part.bytes);
  return material;
}

// The first digit of the first number from `from` on becomes another one.
void change_number(std::string& text, size_t from = 0) {
  const size_t at = text.find_first_of("123456789", from);
  if (at == std::string::npos) give_up("there is no number to change");
  text[at] = text[at] == '9' ? '8' : static_cast<char>(text[at] + 1);
}

// A daemon that was told to stop holds it for a moment longer.
std::unique_ptr<Store> open_store(const char* directory) {
  StoreOptions options;
  options.directory = directory;
  auto store = Store::open(options);
  for (int tries = 0; tries < 300 && !store && store.status().code() == ErrorCode::BUSY; ++tries) {
    usleep(100000);
    store = Store::open(options);
  }
  return must(std::move(store));
}

void change(Plan& plan, Findings& findings, const std::string& part) {
  if (part == "mugraph") return change_number(findings.mugraph);
  if (part == "schedule") return change_number(findings.schedule);
  if (part == "cuda") return change_number(findings.cuda);
  if (part != "certificate") give_up("there is no part " + part);
  const size_t seed = plan.certificate.find("\nseed: ");
  if (seed == std::string::npos) give_up("the certificate has no seed");
  change_number(plan.certificate, seed);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) give_up("usage: tamper DIRECTORY KEY PART");
  const auto store = open_store(argv[1]);
  const std::optional<Hash128> key = parse_hash(argv[2]);
  if (!key) give_up("no key");
  const StoredPlan stored = must(store->peek(*key));
  Plan plan = must(decode_plan(stored.plan));
  Findings findings = must(store->findings(*key));
  change(plan, findings, argv[3]);
  PlanPut put;
  put.material = material_of(stored);
  put.tier = stored.tier;
  put.plan = encode_plan(plan);
  put.findings = findings;
  put.force = true;
  return must(store->put_and_wait(std::move(put))).published ? 0 : 1;
}
