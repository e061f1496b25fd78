// How long the baseline takes from graph text to cubin, in one process: baseline_bench [--runs N] [--target
// NAME] [--text] GRAPH... With --text it prints the emitted kernels instead of times.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/statistics.h"
#include "core/codegen/baseline.h"
#include "core/graph/text.h"
#include "core/jit/compiler.h"

namespace {

using namespace quern;

double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Of this process, whatever else the machine does.
double cpu_milliseconds() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Options {
  int runs = 5;
  std::string target = "sm_90a";
  bool text = false;
  std::vector<std::string> files;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--text")
      options.text = true;
    else if (argument == "--runs" && i + 1 < argc)
      options.runs = std::max(1, std::atoi(argv[++i]));
    else if (argument == "--target" && i + 1 < argc)
      options.target = argv[++i];
    else
      options.files.push_back(argument);
  }
  return options;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Result<Emitted> emit_text(const std::string& text, const Target& target) {
  auto graph = parse_graph(text);
  if (!graph) return graph.status();
  return emit_baseline(*graph, target);
}

Status bench_file(const std::string& path, const Options& options, const Target& target, Compiler* compiler) {
  const std::string text = read_file(path), name = path.substr(path.rfind('/') + 1);
  std::vector<double> emit, compile, total, cpu;
  size_t cubin = 0;
  Emitted emitted;
  for (int run = 0; run < options.runs; ++run) {
    const double start = milliseconds(), cpu_start = cpu_milliseconds();
    auto result = emit_text(text, target);
    if (!result) return result.status().with_context(name);
    const double emit_end = milliseconds();
    emitted = std::move(*result);
    if (options.text) break;
    auto output = compiler->compile({emitted.source, target.name, {}});
    if (!output) return output.status().with_context(name);
    const double end = milliseconds();
    emit.push_back(emit_end - start);
    compile.push_back(end - emit_end);
    total.push_back(end - start);
    cpu.push_back(cpu_milliseconds() - cpu_start);
    cubin = output->cubin.size();
  }
  if (options.text) {
    std::printf("// %s, workspace %llu bytes\n", name.c_str(),
                static_cast<unsigned long long>(emitted.plan.workspace_bytes));
    for (const Launch& launch : emitted.plan.launches)
      std::printf("// launch %s grid %u x %u block %u\n", launch.kernel.c_str(), launch.grid.x, launch.grid.y,
                  launch.block.x);
    std::printf("%s", emitted.kernels.c_str());
    return {};
  }
  size_t kernels = 0;
  for (size_t at = 0; (at = emitted.kernels.find("__global__", at)) != std::string::npos; ++at) ++kernels;
  std::printf("%-20s %8.2f %9.1f %9.1f %9.1f %8zu %8zu %11.2f %9zu\n", name.c_str(), median(emit),
              median(compile), median(total), median(cpu), kernels, emitted.plan.launches.size(),
              static_cast<double>(emitted.plan.workspace_bytes) / (1 << 20), cubin);
  return {};
}

int fail(const Status& status) {
  std::fprintf(stderr, "baseline_bench: %s: %s\n", error_name(status.code()), status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const auto target = find_target(options.target);
  if (!target) return fail(target.status());
  std::unique_ptr<Compiler> compiler;
  if (!options.text) {
    auto opened = open_nvrtc("");
    if (!opened) return fail(opened.status());
    compiler = std::move(*opened);
    std::printf("%s, %s, median of %d runs\n", compiler->fingerprint().c_str(), options.target.c_str(),
                options.runs);
    std::printf("%-20s %8s %9s %9s %9s %8s %8s %11s %9s\n", "graph", "emit ms", "nvrtc ms", "total ms",
                "cpu ms", "kernels", "launches", "workspace MiB", "cubin B");
  }
  for (const std::string& file : options.files)
    if (Status status = bench_file(file, options, **target, compiler.get()); !status.ok())
      return fail(status);
  return 0;
}
