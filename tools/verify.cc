// quern verify: whether the records of the cache are whole, and whether its certificates hold. The daemon
// reads the records; what a certificate says is computed again here, because the daemon never runs what takes
// long.
#include "core/optimize/certify.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/session.h"

namespace quern {

namespace {

Result<std::vector<Hash128>> list_keys(Session& session) {
  std::vector<Hash128> keys;
  for (wire::List request;;) {
    Result<wire::ListReply> page = session.ask<wire::ListReply>(request);
    if (!page) return page.status();
    for (const wire::ListRow& row : page->rows) keys.push_back(row.key);
    if (!page->more || page->rows.empty()) return keys;
    request.after = keys.back();
  }
}

// Nothing of a plan that is gone by now.
Result<std::vector<std::string>> faults_of(Session& session, const Hash128& key, Depth depth) {
  const Result<wire::ShowReply> shown = session.ask<wire::ShowReply>(wire::Show{key});
  if (!shown && shown.status().code() == ErrorCode::NOT_FOUND) return std::vector<std::string>();
  if (!shown) return shown.status();
  const Result<Plan> plan = decode_plan(shown->plan);
  if (!plan) return std::vector<std::string>{plan.status().message()};
  return certificate_faults(*plan, {shown->graph, shown->mugraph, shown->schedule, shown->cuda}, depth);
}

struct Certificates {
  size_t plans = 0, checked = 0;
  std::vector<std::pair<Hash128, std::string>> faults;
};

// As many as there is time for.
Result<Certificates> check_certificates(Session& session, Depth depth, bool bar) {
  const Result<std::vector<Hash128>> keys = list_keys(session);
  if (!keys) return keys.status();
  Certificates found;
  found.plans = keys->size();
  Progress progress("certificates", keys->size(), bar);
  for (const Hash128& key : *keys) {
    if (std::chrono::steady_clock::now() >= session.deadline) break;
    const Result<std::vector<std::string>> faults = faults_of(session, key, depth);
    if (!faults && faults.status().code() == ErrorCode::TIMEOUT) break;
    if (!faults) return faults.status();
    for (const std::string& fault : *faults) found.faults.emplace_back(key, fault);
    progress.update(++found.checked);
  }
  return found;
}

Result<wire::VerifyReply> check_records(Session& session, bool bar) {
  Progress progress("records", 0, bar);
  return session.ask<wire::VerifyReply>(
      wire::Verify{1}, [&](const wire::Progress& now) { progress.update(now.done, now.total); });
}

int run_verify(const Arguments& arguments) {
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  const Result<wire::VerifyReply> records = check_records(*session, !arguments.json());
  if (!records) return fail(arguments, records.status());
  const Depth depth = arguments.has("quick") ? Depth::hashes : Depth::program;
  const Result<Certificates> certificates = check_certificates(*session, depth, !arguments.json());
  if (!certificates) return fail(arguments, certificates.status());
  if (arguments.json()) {
    Json faults = Json::array();
    for (const auto& [key, what] : certificates->faults)
      faults.push_back({{"key", to_hex(key)}, {"what", what}});
    print_json({{"checked", records->checked},
                {"damaged", records->damaged},
                {"problems", records->problems},
                {"plans", certificates->plans},
                {"certificates", certificates->checked},
                {"faults", faults}});
  } else {
    for (const std::string& problem : records->problems) print_text(problem + "\n");
    for (const auto& [key, what] : certificates->faults) print_text(to_hex(key) + ": " + what + "\n");
    print_text(std::to_string(records->checked) + " records read, " + std::to_string(records->damaged) +
               " damaged\n" + std::to_string(certificates->checked) + " certificates checked" +
               (certificates->checked < certificates->plans
                    ? " of " + std::to_string(certificates->plans) + ": the time was up"
                    : "") +
               ", " + std::to_string(certificates->faults.size()) + " disagreements\n");
  }
  if (records->damaged || !certificates->faults.empty()) return kExitNo;
  return certificates->checked < certificates->plans ? kExitPending : kExitOk;
}

}  // namespace

const Command Commands::kVerifyCommand = {
    "verify",
    "",
    0,
    0,
    "read the whole cache, and check damage and certificates",
    "Reads every record of the cache and checks it. Damaged ones are listed and removed: the next\n"
    "request for them is a miss. Then it checks the certificate of every plan against what is stored: the\n"
    "hashes of graph, muGraph, schedule, CUDA text and cubin; the program, emitted again; the verdict on\n"
    "the muGraph, made again with the seed in the certificate (some 0.1 s a plan), and where the whole\n"
    "is too large to be decided, that on each of its parts. Plans of another\n"
    "version of quern are judged by their hashes. Exit code 1 means that there was damage or a\n"
    "disagreement (\"quern rm KEY\" forgets the plan), 6 that --timeout ended it.\n",
    true,
    {{"quick", 0, nullptr, "of certificates only the hashes: microseconds a plan"}},
    run_verify,
};

}  // namespace quern
