// What is behind a quern_client: the client of the daemon, and the plans that it knows.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "capi/client.h"
#include "capi/graph_handle.h"
#include "capi/plan_table.h"
#include "capi/quern.h"
#include "capi/recorder.h"

struct quern_client {
 public:
  // `options` has been read; its texts are copied.
  static quern::Result<quern_client*> open(const quern_open_options& options);

  quern::Client& client() { return *client_; }
  const quern::Client& client() const { return *client_; }
  const quern::PlanTable& table() const { return table_; }

  // See quern_get. PENDING travels as a Status.
  quern::Result<PlanRef> get(const quern_graph& graph, std::string_view target,
                             const quern_get_options& options);
  // One Status a graph.
  std::vector<quern::Status> prewarm(const std::vector<const quern_graph*>& graphs, std::string_view target,
                                     const quern_get_options& options);
  // The number of plans for which a better one was announced since the last call.
  uint64_t take_better() { return better_.exchange(0); }

 private:
  explicit quern_client(const quern_open_options& options);
  void look_if_due();
  quern::Status record_as_told();
  quern::Result<PlanRef> find(const quern::PlanRequest& request, const quern_get_options& options);
  void note(const quern::PlanRequest& request, const quern::Result<PlanRef>& got);
  quern::Result<PlanRef> accept(const quern::PlanRequest& request, quern::Result<quern::Answer> answer);

  quern::PlanTable table_;
  std::atomic<uint64_t> better_{0};
  const int64_t look_every_ns_;  // negative: never
  std::atomic<int64_t> next_look_ns_{0};
  std::unique_ptr<quern::Recorder> recorder_, missing_;  // of $QUERN_RECORD and $QUERN_STRICT; null: not set
  std::unique_ptr<quern::Client> client_;                // last, since it calls into what stands above
};

namespace quern {
// The moment `timeout_ms` from now; 0 means 60 seconds, UINT32_MAX as good as never.
TimePoint deadline_after(uint32_t timeout_ms);
}  // namespace quern
