#include "core/optimize/program.h"

#include <map>

#include "core/base/bytes.h"

namespace quern {

namespace {

constexpr uint32_t kVersion = 1;

}  // namespace

Hash128 Program::name() const {
  ByteWriter bytes;
  bytes.string(mugraph);
  bytes.string(schedule);
  return hash128(bytes.view());
}

std::string encode_programs(const std::vector<Program>& programs) {
  std::map<std::string_view, uint32_t> numbers;
  std::vector<std::string_view> mugraphs;
  for (const Program& program : programs)
    if (numbers.emplace(program.mugraph, mugraphs.size()).second) mugraphs.push_back(program.mugraph);
  ByteWriter out;
  out.put(kVersion);
  out.put(static_cast<uint32_t>(mugraphs.size()));
  for (const std::string_view text : mugraphs) out.string(text);
  out.put(static_cast<uint32_t>(programs.size()));
  for (const Program& program : programs) {
    out.put(numbers[program.mugraph]);
    out.string(program.schedule);
    out.put(program.modelled_ns);
    out.string(program.plan);
  }
  return out.take();
}

Result<std::vector<Program>> decode_programs(std::string_view bytes) {
  const Status corrupt(ErrorCode::CORRUPT, "no list of programs");
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kVersion) return corrupt;
  std::vector<std::string> mugraphs;
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) mugraphs.emplace_back(in.string());
  std::vector<Program> programs;
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    const uint32_t number = in.get<uint32_t>();
    if (!in.ok() || number >= mugraphs.size()) return corrupt;
    Program program;
    program.mugraph = mugraphs[number];
    program.schedule = in.string();
    program.modelled_ns = in.get<uint64_t>();
    program.plan = in.string();
    programs.push_back(std::move(program));
  }
  if (!in.ok() || !in.at_end() || encode_programs(programs) != bytes) return corrupt;
  return programs;
}

}  // namespace quern
