#include "core/base/target.h"

namespace quern {

namespace {

constexpr Target kTargets[] = {
#define QUERN_TARGET(...) {__VA_ARGS__},
#include "core/base/targets.def"
#undef QUERN_TARGET
};

std::string known_names() {
  std::string names;
  for (const Target& target : kTargets) names += (names.empty() ? "" : ", ") + std::string(target.name);
  return names;
}

}  // namespace

std::span<const Target> all_targets() { return kTargets; }

Result<const Target*> find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (name == target.name) return &target;
  return Status(ErrorCode::UNSUPPORTED,
                "unknown target \"" + std::string(name) + "\"; known are " + known_names());
}

Result<const Target*> target_for_device(int major, int minor) {
  const Target* best = nullptr;
  for (const Target& target : kTargets)  // a later row of the same capability is the more specific one
    if (target.major == major && target.minor == minor) best = &target;
  // Code without the "a" suffix runs on later minor versions of its major version.
  if (!best)
    for (const Target& target : kTargets)
      if (target.major == major && target.minor <= minor && std::string_view(target.name).back() != 'a')
        best = &target;
  if (best) return best;
  return Status(ErrorCode::UNSUPPORTED, "no target for a device of compute capability " +
                                            std::to_string(major) + "." + std::to_string(minor) +
                                            "; known are " + known_names());
}

}  // namespace quern
