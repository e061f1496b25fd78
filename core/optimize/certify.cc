#include "core/optimize/certify.h"

#include "core/base/facts.h"
#include "core/base/hash.h"
#include "core/codegen/arithmetic_verifier.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/parts.h"
#include "core/verify/verifier.h"

namespace quern {

namespace {

using Facts = std::vector<Fact>;

std::string hash_fact(const char* of, const std::string& bytes) {
  return print_fact(std::string(of) + " hash", to_hex(hash128(bytes)));
}

std::string hash_facts(const PlanSource& source, const std::string& cubin) {
  std::string text = hash_fact("graph", source.graph);
  if (!source.mugraph.empty())
    text += hash_fact("mugraph", source.mugraph) + hash_fact("schedule", source.schedule);
  if (!source.cuda.empty()) text += hash_fact("cuda", source.cuda);
  return text + hash_fact("cubin", cubin);
}

Facts must_parse(const std::string& text) {
  Result<Facts> facts = parse_facts(text);
  check(facts.ok(), "a certificate is made of other lines than facts");
  return std::move(*facts);
}

class CertificateCheck {
 public:
  explicit CertificateCheck(const Plan& plan) : plan_(plan) {}

  std::vector<std::string> run(const PlanSource& stored, Depth depth) {
    Result<Facts> facts = parse_facts(plan_.certificate);
    if (!facts) return {"the certificate is none: " + facts.status().message()};
    facts_ = std::move(*facts);
    const bool searched =
        plan_.tier == Tier::modelled || !stored.mugraph.empty();  // what is measured may be either
    if (searched && (stored.mugraph.empty() || stored.schedule.empty() || stored.cuda.empty()))
      fault("the muGraph, the schedule or the CUDA text that it was made from is not stored");
    expect(hash_facts(stored, plan_.cubin));
    const std::string* version = find_fact(facts_, "quern");
    if (!version)
      fault("the certificate does not say which version of Quern made it");
    else if (depth == Depth::program && *version == QUERN_PACKAGE_VERSION && faults_.empty())
      make_again(stored);
    return std::move(faults_);
  }

 private:
  void fault(std::string what) { faults_.push_back(std::move(what)); }

  // Each of these facts must be in the certificate.
  void expect(const std::string& text) {
    for (const Fact& fact : must_parse(text)) {
      const std::string* stored = find_fact(facts_, fact.name);
      if (!stored)
        fault("the certificate does not say \"" + fact.name + "\", which is " + fact.value);
      else if (*stored != fact.value)
        fault(fact.name + " is " + fact.value + ", and " + *stored + " in the certificate");
    }
  }

  // All texts are those that the certificate names.
  void make_again(const PlanSource& source) {
    const Result<Graph> graph = parse_graph(source.graph);
    if (!graph) return fault("the graph is not valid: " + graph.status().message());
    const Result<const Target*> target = find_target(plan_.target);
    if (!target) return fault(target.status().message());
    if (source.mugraph.empty()) return compare_program(emit_baseline(*graph, **target));
    const Result<MuGraph> mugraph = parse_mugraph(source.mugraph);
    if (!mugraph) return fault("the muGraph is not valid: " + mugraph.status().message());
    const Result<Schedule> schedule = parse_schedule(source.schedule);
    if (!schedule) return fault("the schedule is not valid: " + schedule.status().message());
    compare_program(emit_mugraph(*graph, *mugraph, *schedule, **target));
    compare_verdict(*graph, *mugraph);
    compare_arithmetic(*graph, *mugraph, *schedule);
  }

  template <class T>
  void compare_program(const Result<T>& emitted) {
    if (!emitted) return fault("it is not emitted again: " + emitted.status().message());
    expect(emitted->plan.certificate + hash_fact("cuda", emitted->source));
    Plan again = emitted->plan;
    again.certificate = plan_.certificate;
    again.tier = plan_.tier;  // measuring changes it
    again.cubin = plan_.cubin;
    for (size_t i = 0; i < again.launches.size(); ++i)
      if (find_fact(facts_, waiting_fact(i))) again.launches[i].overlaps = false;
    if (!(again == plan_)) fault("emitted again it has other buffers or launches");
  }

  void compare_verdict(const Graph& graph, const MuGraph& mugraph) {
    const Result<Certificate> stored = parse_certificate(plan_.certificate);
    if (!stored) return fault(stored.status().message());
    VerifyOptions options;
    options.seed = stored->seed;
    const Certificate verdict = verify(graph, mugraph, options);
    expect(verdict.print());
    if (verdict.verdict == Verdict::undecided) expect(part_facts(verify_parts(graph, mugraph, stored->seed)));
  }

  void compare_arithmetic(const Graph& graph, const MuGraph& mugraph, const Schedule& schedule) {
    ArithmeticVerdict verdict = ArithmeticVerifier(graph).judge(mugraph, schedule);
    verdict.largest_class.clear();  // that number depends on the last bit of the machine's exp2f
    expect(verdict.print());
  }

  const Plan& plan_;
  Facts facts_;
  std::vector<std::string> faults_;
};

}  // namespace

std::string source_facts(const PlanSource& source, const std::string& cubin, const std::string& compiler) {
  return hash_facts(source, cubin) + print_fact("quern", QUERN_PACKAGE_VERSION) +
         print_fact("compiler", compiler);
}

std::vector<std::string> certificate_faults(const Plan& plan, const PlanSource& stored, Depth depth) {
  return CertificateCheck(plan).run(stored, depth);
}

}  // namespace quern
