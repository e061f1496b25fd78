// What a job is (workers.h): its size in memory, and how one is made of a stored key's material.
#include <cstdlib>

#include "daemon/workers.h"

namespace quern {

size_t JobSpec::bytes() const {
  return 1024 + material.bytes().size() + request.bytes().size() + graph.size() + constraints.size() +
         state.size() + programs.size();
}

std::optional<JobSpec> job_for(wire::JobKind kind, const Hash128& key, std::string_view material) {
  auto parts = parse_key_material(material);
  if (!parts) return std::nullopt;
  JobSpec spec;
  spec.kind = kind;
  spec.graph = key_part(*parts, "graph");
  spec.target = key_part(*parts, "target");
  spec.toolchain = key_part(*parts, "toolchain");
  spec.constraints = key_part(*parts, "constraints");
  spec.numerics =
      static_cast<uint32_t>(std::strtoul(std::string(key_part(*parts, "policy")).c_str(), nullptr, 16));
  spec.material = plan_key(spec.graph, spec.target, spec.numerics, spec.toolchain, spec.constraints);
  if (spec.material.key() != key) return std::nullopt;
  return spec;
}

}  // namespace quern
