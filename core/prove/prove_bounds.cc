#include "core/prove/arithmetic.h"
#include "core/prove/questions.h"

namespace quern::proof {

namespace {

void prove_access(Questions& questions, const Event& event) {
  const Access& access = *event.access;
  const auto memory_at = questions.trace().memories.find(access.memory);
  const Memory* const memory = memory_at == questions.trace().memories.end() ? nullptr : &memory_at->second;
  if (!memory)
    return questions.find(ProofFinding::Kind::unproved, "bounds", text_of(event),
                          "memory of an unknown size");
  if (access.bytes > 0) {
    const std::string what = std::to_string(access.bytes) + " bytes of " + memory->symbol->name +
                             ", which has " + std::to_string(memory->bytes);
    questions.conclude(questions.ask(with(event.where, less(access.at, 0))), "bounds", event,
                       what + ", before its beginning");
    questions.conclude(questions.ask(with(event.where, less(memory->bytes - access.bytes, access.at))),
                       "bounds", event, what);
  }
  if (access.alignment > memory->alignment)
    questions.find(ProofFinding::Kind::disproved, "alignment", text_of(event),
                   memory->symbol->name + " begins at a multiple of " + std::to_string(memory->alignment) +
                       " bytes, not of " + std::to_string(access.alignment));
  else if (is_multiple(access.at, access.alignment))
    questions.count_known();
  else
    questions.conclude(
        questions.ask(with(event.where, operation(ir::Operator::not_equal, access.at % access.alignment, 0))),
        "alignment", event, "not at a multiple of " + std::to_string(access.alignment) + " bytes");
}

// Tensor maps describe no more than there is.
void prove_maps(Questions& questions) {
  for (size_t i = 0; i < questions.facts().parameters.size(); ++i) {
    const auto& map = questions.facts().parameters[i].map;
    if (!map) continue;
    const std::string& name = questions.kernel().parameters[i].symbol->name;
    if (const Status status = check_tensor_map(*map); !status.ok())
      questions.find(ProofFinding::Kind::disproved, "bounds", name, status.message());
    int64_t last = 0;
    for (size_t d = 0; d < map->shape.size(); ++d) last += (map->shape[d] - 1) * map->strides[d];
    if (last >= questions.facts().parameters[i].elements)
      questions.find(ProofFinding::Kind::disproved, "bounds", name,
                     "its last element is number " + std::to_string(last) + " of " +
                         std::to_string(questions.facts().parameters[i].elements));
  }
}

}  // namespace

void prove_bounds(Questions& questions) {
  for (const Event& event : questions.trace().events)
    if (event.access) prove_access(questions, event);
  prove_maps(questions);
}

}  // namespace quern::proof
