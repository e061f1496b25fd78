// quern export and quern import: plans from one cache to another, in a signed file.
#include <chrono>
#include <filesystem>

#include "capi/wire/pack.h"
#include "capi/wire/paths.h"
#include "core/base/target.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/session.h"

namespace quern {

namespace {

constexpr uint64_t kMostUsedMs = 3650ull * 24 * 3'600'000;
constexpr size_t kAtOnce = 64;

std::string beside_configuration(const char* name) {
  return std::filesystem::path(default_config_path()).parent_path() / name;
}

std::string key_file(const Arguments& arguments) {
  return arguments.has("key-file") ? arguments.value("key-file") : beside_configuration("pack.key");
}

uint64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

// ---- export ----

struct Filter {
  std::string target, tier, graph;
  uint64_t since_ms = 0;
  std::vector<std::string> keys;  // their first digits; empty: all

  bool takes(const wire::ListRow& row) const {
    const std::string hex = to_hex(row.key);
    const bool named = keys.empty() || std::any_of(keys.begin(), keys.end(), [&](const auto& digits) {
                         return hex.starts_with(digits);
                       });
    return named && (target.empty() || row.target == target) &&
           (tier.empty() || tier == tier_name(row.tier)) && (graph.empty() || row.name == graph) &&
           row.used_ms >= since_ms;
  }
};

Result<Filter> filter_of(const Arguments& arguments) {
  Filter filter{arguments.value("target"), arguments.value("tier"), arguments.value("graph"), 0, {}};
  if (!filter.target.empty())
    if (Result<const Target*> target = find_target(filter.target); !target)
      return Status(ErrorCode::INVALID_ARGUMENT, target.status().message());
  if (!filter.tier.empty())
    if (Result<Tier> tier = tier_named(filter.tier, "--tier"); !tier) return tier.status();
  if (arguments.has("used-within")) {
    Result<uint64_t> time = arguments.duration_ms("used-within", kMostUsedMs);
    if (!time) return time.status();
    filter.since_ms = now_ms() - *time;
  }
  filter.keys.assign(arguments.operands().begin() + 1, arguments.operands().end());
  return filter;
}

Result<std::vector<wire::Show>> chosen(Session& session, const Filter& filter) {
  std::vector<wire::Show> shows;
  Status status = each_row(session, {}, [&](const wire::ListRow& row) {
    if (filter.takes(row)) shows.push_back({row.key});
    return true;
  });
  if (!status.ok()) return status;
  return shows;
}

int run_export(const Arguments& arguments) {
  const std::string path = arguments.operands()[0];
  Result<Filter> filter = filter_of(arguments);
  if (!filter) return fail(arguments, filter.status());
  Result<SigningKey> key = read_or_make_key(key_file(arguments));
  if (!key) return fail(arguments, key.status());
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  Result<std::vector<wire::Show>> shows = chosen(*session, *filter);
  if (!shows) return fail(arguments, shows.status());
  Pack pack;
  pack.created_ms = now_ms();
  Progress progress("exporting", shows->size(), !arguments.json());
  for (size_t begin = 0; begin < shows->size(); begin += kAtOnce) {
    const std::vector<wire::Show> some(
        shows->begin() + static_cast<ptrdiff_t>(begin),
        shows->begin() + static_cast<ptrdiff_t>(std::min(shows->size(), begin + kAtOnce)));
    for (const Result<Answer>& answer : session->client->exchange_all(some, session->deadline)) {
      Result<wire::ShowReply> shown =
          answer ? answer->as<wire::ShowReply>() : Result<wire::ShowReply>(answer.status());
      if (shown)
        pack.plans.push_back(import_of(std::move(*shown)));
      else if (shown.status().code() != ErrorCode::NOT_FOUND)  // evicted meanwhile
        return fail(arguments, shown.status());
    }
    progress.update(std::min(shows->size(), begin + kAtOnce));
  }
  const std::string bytes = sign_pack(pack, *key);
  if (Status status = write_file(path, bytes); !status.ok()) return fail(arguments, status);
  const std::string signer = hex_of(key->public_key);
  if (arguments.json())
    print_json(
        {{"file", path}, {"plans", pack.plans.size()}, {"bytes", bytes.size()}, {"public_key", signer}});
  else
    print_text(std::to_string(pack.plans.size()) + (pack.plans.size() == 1 ? " plan, " : " plans, ") +
               human_bytes(bytes.size()) + ", signed by " + signer + "\n");
  return kExitOk;
}

// ---- import ----

// Those that the command line names, those of the file of trusted keys, and one's own.
Result<std::vector<std::string>> trusted_keys(const Arguments& arguments) {
  std::vector<std::string> sources = arguments.values("trust"), trusted;
  std::error_code error;
  if (const std::string file = beside_configuration("trusted-keys"); std::filesystem::exists(file, error))
    sources.push_back(file);
  for (const std::string& source : sources) {
    Result<std::vector<std::string>> keys = read_public_keys(source);
    if (!keys) return keys.status();
    trusted.insert(trusted.end(), keys->begin(), keys->end());
  }
  if (!std::filesystem::exists(key_file(arguments), error)) return trusted;
  Result<SigningKey> own = read_or_make_key(key_file(arguments));
  if (!own) return own.status();
  trusted.push_back(own->public_key);
  return trusted;
}

struct Outcome {
  size_t stored = 0, kept = 0, foreign = 0;
};

Result<Outcome> store_all(const Arguments& arguments, Session& session, const Pack& pack) {
  const std::string toolchain = session.client->welcome().toolchain;
  Outcome outcome;
  Progress progress("importing", pack.plans.size(), !arguments.json());
  for (size_t begin = 0; begin < pack.plans.size(); begin += kAtOnce) {
    const std::vector<wire::Import> some(
        pack.plans.begin() + static_cast<ptrdiff_t>(begin),
        pack.plans.begin() + static_cast<ptrdiff_t>(std::min(pack.plans.size(), begin + kAtOnce)));
    const std::vector<Result<Answer>> answers = session.client->exchange_all(some, session.deadline);
    for (size_t i = 0; i < answers.size(); ++i) {
      Result<wire::Imported> imported =
          answers[i] ? answers[i]->as<wire::Imported>() : Result<wire::Imported>(answers[i].status());
      if (!imported) return imported.status().with_context("plan " + to_hex(some[i].key));
      ++(imported->published ? outcome.stored : outcome.kept);
      outcome.foreign += !toolchain.empty() && some[i].toolchain != toolchain;
    }
    progress.update(std::min(pack.plans.size(), begin + kAtOnce));
  }
  return outcome;
}

int run_import(const Arguments& arguments) {
  Result<std::vector<std::string>> trusted = trusted_keys(arguments);
  if (!trusted) return fail(arguments, trusted.status());
  Result<std::string> bytes = read_file(arguments.operands()[0]);
  if (!bytes) return fail(arguments, bytes.status());
  Result<Pack> pack = open_pack(*bytes, *trusted);
  if (!pack) return fail(arguments, pack.status().with_context(arguments.operands()[0]));
  Outcome outcome;
  if (!arguments.has("dry-run")) {
    Result<Session> session = open_session(arguments);
    if (!session) return fail(arguments, session.status());
    Result<Outcome> stored = store_all(arguments, *session, *pack);
    if (!stored) return fail(arguments, stored.status());
    outcome = *stored;
  }
  if (arguments.json()) {
    print_json({{"plans", pack->plans.size()},
                {"stored", outcome.stored},
                {"kept", outcome.kept},
                {"other_toolchain", outcome.foreign},
                {"created_ms", pack->created_ms}});
    return kExitOk;
  }
  std::string text = std::to_string(pack->plans.size()) + (pack->plans.size() == 1 ? " plan" : " plans") +
                     " of " + human_time(pack->created_ms);
  if (arguments.has("dry-run"))
    text += ", whole and signed by a trusted key\n";
  else
    text += ": " + std::to_string(outcome.stored) + " stored, " + std::to_string(outcome.kept) +
            " were there as good or better\n";
  if (outcome.foreign)
    text += std::to_string(outcome.foreign) +
            " were made by another compiler than the daemon's, and are hits only for daemons that have it\n";
  print_text(text);
  return kExitOk;
}

}  // namespace

const Command Commands::kExportCommand = {
    "export",
    "PACK [KEY]...",
    1,
    1000000,
    "write plans into a signed file, for another cache",
    "Writes the plans of the cache, or those that KEYs (32 digits, or the first few) and options choose, "
    "into the file\n"
    "PACK. It is signed (ed25519) with this user's key, which is made when it is first needed. The "
    "public key is\n"
    "printed: an importer must trust it. Measured times are left out: they belong to a device.\n",
    true,
    {{"target", 't', "TARGET", "only plans for this GPU architecture"},
     {"tier", 0, "TIER", "only plans of this tier: baseline, modelled, measured"},
     {"graph", 'g', "NAME", "only plans of graphs of this name"},
     {"used-within", 0, "TIME", "only plans that were used in the last 12h, 30d, ..."},
     {"key-file", 0, "FILE", "sign with this key (pack.key beside the configuration)"}},
    run_export,
};

const Command Commands::kImportCommand = {
    "import",
    "PACK",
    1,
    1,
    "store the plans of a signed file",
    "Checks the signature of PACK over the whole file, and every plan, before anything is stored. Signers "
    "that are trusted:\n"
    "this user's own key, those in the file trusted-keys beside the configuration (64 hexadecimal digits a "
    "line), and\n"
    "--trust. A plan never replaces one that is as good or better, so that an import may be repeated. "
    "Kernels run with\n"
    "the rights of the programs that launch them: trust only signers who may run code here.\n",
    true,
    {{"trust", 0, "KEY", "trust this public key too, or those in a file; may be given several times"},
     {"key-file", 0, "FILE", "one's own key (pack.key beside the configuration)"},
     {"dry-run", 'n', nullptr, "check the file, and store nothing"}},
    run_import,
};

}  // namespace quern
