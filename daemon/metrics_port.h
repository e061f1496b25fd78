// An optional port on 127.0.0.1 where Prometheus reads the statistics: GET /metrics, HTTP/1.0 or 1.1, one
// request a connection.
#pragma once

#include <uv.h>

#include <functional>
#include <string>
#include <unordered_set>

#include "core/base/status.h"

namespace quern {

class MetricsPort {
 public:
  static constexpr size_t kMaxConnections = 16, kMaxRequestBytes = 8192;
  static constexpr uint64_t kLimitMs = 5000;  // of a connection

  MetricsPort(uv_loop_t* loop, std::function<std::string()> page) : loop_(loop), page_(std::move(page)) {}

  // IO when the port is taken.
  Status listen(uint16_t port);
  // For good; the loop runs until what belongs to it is closed.
  void close();

 private:
  struct Connection;
  void accept();
  std::string answer(const std::string& request) const;

  uv_loop_t* const loop_;
  const std::function<std::string()> page_;
  uv_tcp_t listening_;
  bool open_ = false;
  std::unordered_set<Connection*> connections_;
};

}  // namespace quern
