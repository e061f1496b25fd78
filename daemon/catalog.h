// What the store holds, as messages: lists, details, removal, statistics.
#pragma once

#include <functional>
#include <vector>

#include "cache/store.h"
#include "capi/wire/messages.h"
#include "daemon/workers.h"

namespace quern {

Result<wire::ListReply> list_plans(Store& store, const wire::List& request);
// NOT_FOUND when there is no such plan.
Result<wire::ShowReply> show_plan(Store& store, const Hash128& key);
// The programs of a key and what they take, as far as they are stored.
void add_programs(Store& store, const Hash128& key, std::vector<wire::ProgramRow>& programs,
                  std::vector<wire::TimingRow>& timings);
Result<std::vector<Hash128>> all_keys(Store& store);
// Call `done` through `post` when it is durable for all, with how many there were; keys without a plan are no
// error.
void pin_plans(Store& store, const std::vector<Hash128>& keys, bool pinned, const Post& post,
               std::function<void(Result<uint64_t>)> done);
void remove_plans(Store& store, const std::vector<Hash128>& keys, const Post& post,
                  std::function<void(Result<uint64_t>)> done);
wire::VerifyReply verify_reply(const VerifyReport& report);
void add_store_stats(Store& store, wire::StatsReply& stats);
// Writes a record and calls `done` through `post` with "ok", or why it was refused.
void try_write(Store& store, const Post& post, std::function<void(std::string)> done);

}  // namespace quern
