// Plants faults in small kernels, and asks prove_kernel and the emulator about each:
//   prove_faults [--most N] [--list]
//
// A fault that is disproved must be one: the emulator finds a broken rule, or the outputs are wrong. One that
// is proved must be none: the emulator is content, and the outputs are right. --most takes so many of them,
// evenly from all;
// --list prints each. Prints a table of the kinds; the exit code is 0 if both hold for all.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/emulator/emulator.h"
#include "core/optimize/prove_program.h"
#include "core/verify/reference.h"
#include "tools/bench/faults/faults.h"

namespace {

using namespace quern;

constexpr size_t kBatch = 40;  // programs a compilation
// Orders of threads that the emulator tries; what is disproved may need a rare one to show.
constexpr uint64_t kSeeds = 3, kSuspectedSeeds = 10;

struct Planted {
  const FaultCase* from;
  size_t launch;  // whose kernel is changed
  Fault fault;
  Proof proof;
  std::string emulator;  // what is wrong; empty: nothing
};

// The program's text with another kernel in one place.
std::string text_with(const FaultCase& from, size_t launch, const ir::Kernel& kernel) {
  const Emitted& emitted = from.emitted;
  auto text_of = [&](ir::Kernel code) {
    code.name = emitted.code[launch].kernel.name;
    code.comment.clear();
    return print_cuda(code);
  };
  std::string text = emitted.kernels;
  const std::string original = text_of(emitted.code[launch].kernel);
  const size_t at = text.find(original);
  check(at != std::string::npos, "a kernel's text is in the program's");
  return text.replace(at, original.size(), text_of(kernel));
}

std::string run(const FaultCase& from, emulated::Program& program, bool suspected) {
  const Plan& plan = from.emitted.plan;
  std::vector<std::string> buffers;
  std::vector<RealTensor> inputs;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    buffers.push_back(random_buffer(plan.inputs[i], 1000 + i, 0.5));
    inputs.push_back(read_buffer(plan.inputs[i], buffers.back().data()));
  }
  const std::vector<std::string_view> views(buffers.begin(), buffers.end());
  const std::vector<Expected> expected = expect_outputs(from.graph, inputs);
  for (uint64_t seed = 1, last = suspected ? kSuspectedSeeds : kSeeds; seed <= last; ++seed) {
    const auto outputs = emulated::run_plan(program, plan, views, {.seed = seed});
    if (!outputs) return outputs.status().message();
    for (size_t i = 0; i < outputs->size(); ++i) {
      const Comparison result =
          compare(plan.outputs[i], read_buffer(plan.outputs[i], (*outputs)[i].data()), expected[i]);
      if (!result.acceptable) return plan.outputs[i].name + " " + result.what;
    }
  }
  return "";
}

void emulate(std::vector<Planted>& all) {
  for (size_t begin = 0; begin < all.size(); begin += kBatch) {
    std::vector<emulated::ProgramSource> sources;
    const size_t end = std::min(all.size(), begin + kBatch);
    for (size_t i = begin; i < end; ++i)
      sources.push_back(emulated::make_source(text_with(*all[i].from, all[i].launch, all[i].fault.kernel),
                                              all[i].from->emitted.plan));
    auto programs = emulated::compile_programs(sources);
    if (!programs) {
      std::fprintf(stderr, "prove_faults: %s\n", programs.status().message().c_str());
      std::exit(2);
    }
    for (size_t i = begin; i < end; ++i)
      all[i].emulator = run(*all[i].from, (*programs)[i - begin], all[i].proof.disproof());
  }
}

std::vector<Planted> planted(const std::vector<FaultCase>& cases) {
  std::vector<Planted> all;
  for (const FaultCase& each : cases)
    for (size_t launch = 0; launch < each.emitted.code.size(); ++launch) {
      const LaunchedKernel& code = each.emitted.code[launch];
      if (each.emitted.plan.launches[code.launch].kernel != code.kernel.name) continue;  // joined with others
      for (Fault& fault : plant_faults(code.kernel)) all.push_back({&each, launch, std::move(fault), {}, ""});
    }
  return all;
}

struct Row {
  int planted = 0, disproved = 0, confirmed = 0, equal = 0, unproved = 0, false_alarms = 0, missed = 0;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int main(int argc, char** argv) {
  size_t most = 0;
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--list") == 0) list = true;
    if (std::strcmp(argv[i], "--most") == 0 && i + 1 < argc) most = static_cast<size_t>(std::atoi(argv[++i]));
  }
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) return 77;  // as meson says "skipped"
  const std::vector<FaultCase> cases = fault_cases();
  bool good = true;
  for (const FaultCase& each : cases)
    for (const KernelProof& proof : prove_program(each.emitted, solver.get())) {
      if (!proof.proof.proved())
        std::printf("%s, without a fault: %s\n", each.label.c_str(), proof.proof.summary().c_str());
      good &= proof.proof.proved();
    }
  std::vector<Planted> all = planted(cases);
  if (most > 0 && most < all.size()) {
    std::vector<Planted> some;
    for (size_t i = 0; i < most; ++i) some.push_back(std::move(all[i * all.size() / most]));
    all = std::move(some);
  }
  for (Planted& each : all)
    each.proof = prove_kernel(each.fault.kernel, each.from->emitted.code[each.launch].facts,
                              {std::chrono::seconds(2), solver.get()});
  emulate(all);
  std::map<std::string, Row> rows;
  for (const Planted& each : all) {
    const bool disproved = each.proof.disproof() != nullptr, wrong = !each.emulator.empty();
    for (Row* row : {&rows[each.fault.kind], &rows["~ all"]}) {
      ++row->planted;
      row->disproved += disproved;
      row->confirmed += disproved && wrong;
      row->equal += each.proof.proved() && !wrong;
      row->unproved += !disproved && !each.proof.proved();
      row->false_alarms += disproved && !wrong;
      row->missed += each.proof.proved() && wrong;
    }
    const bool right = disproved ? wrong : each.proof.proved() && !wrong;
    good &= right;
    if (list || !right)
      std::printf("%s%s, %s: %s\n  %s\n  emulator: %s\n",
                  right ? "" : "NOT AGREED: ", each.from->label.c_str(), each.fault.kind.c_str(),
                  each.fault.change.c_str(), each.proof.summary().c_str(),
                  wrong ? first_line(each.emulator).c_str() : "nothing wrong");
  }
  std::printf("%-18s %8s %10s %10s %10s %9s %12s %7s\n", "fault", "planted", "disproved", "confirmed",
              "equal", "unproved", "false alarms", "missed");
  for (const auto& [kind, row] : rows)
    std::printf("%-18s %8d %10d %10d %10d %9d %12d %7d\n", kind.c_str(), row.planted, row.disproved,
                row.confirmed, row.equal, row.unproved, row.false_alarms, row.missed);
  return good ? 0 : 1;
}
