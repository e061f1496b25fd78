// What a store's file was written, in order, to be written again as far as a power cut let it come.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace quern {

struct RecordedWrite {
  enum Kind : uint8_t { write, synced_write, sync };
  Kind kind = write;
  uint64_t at = 0;
  std::string bytes;

  std::string encode() const {
    ByteWriter out;
    out.put(kind);
    out.put(at);
    out.string(bytes);
    return out.take();
  }
};

// A record that is cut short was not completed.
inline std::vector<RecordedWrite> decode_recorded_writes(std::string_view bytes) {
  std::vector<RecordedWrite> writes;
  for (ByteReader in(bytes); !in.at_end();) {
    RecordedWrite write;
    write.kind = in.get<RecordedWrite::Kind>();
    write.at = in.get<uint64_t>();
    write.bytes = in.string();
    if (!in.ok()) break;
    writes.push_back(std::move(write));
  }
  return writes;
}

}  // namespace quern
