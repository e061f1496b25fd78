// What runs in quern-store: LMDB, and nothing that a user of the cache would miss if it died.
#pragma once

#include <cstdint>
#include <string>

namespace quern {

struct EngineServerOptions {
  std::string file;
  uint64_t map_bytes = 0;  // halved as long as the address space refuses it
  bool durable = true;
};

// Answers batches that come over `socket` until it is closed. The exit status of the process.
int serve_engine(const EngineServerOptions& options, int socket);

}  // namespace quern
