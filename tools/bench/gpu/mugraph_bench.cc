// Schedules of muGraphs against each other on a GPU:
//   mugraph_bench [--search N] [--save DIR] [--top M] [--target NAME] [--emit] [--compile] [--text]
//                 [--against baseline] [--schedule FILE] GRAPH.qg [MUGRAPH.qmu...]
//
// Takes the M best-ranked schedules of every muGraph (or the one in FILE), compiles them with NVRTC, checks
// all elements against the f64 reference (or, for shapes where that takes minutes, against the baseline
// emitter's program), and times them interleaved, captured in CUDA graphs, hot and with inputs that rotate
// over more than four times the L2 cache, beside what the models of schedules and of the search predicted.
// --search adds the N best candidates of the search for the graph, --save writes these to DIR as .qmu files.
// --compile stops after NVRTC and needs no GPU; --emit stops before it. --text prints the kernels of the best
// schedule.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "core/codegen/mugraph_emitter.h"
#include "core/graph/decompose.h"
#include "core/graph/text.h"
#include "core/jit/compiler.h"
#include "core/jit/device.h"
#include "core/jit/launcher.h"
#include "core/mugraph/text.h"
#include "core/schedule/enumerate.h"
#include "core/search/search.h"
#include "core/verify/reference.h"

namespace {

using namespace quern;

[[noreturn]] void stop(const Status& status) {
  std::fprintf(stderr, "mugraph_bench: %s: %s\n", error_name(status.code()), status.message().c_str());
  std::exit(1);
}
template <class T>
T need(Result<T> result) {
  if (!result) stop(result.status());
  return std::move(*result);
}
void need(const Status& status) {
  if (!status.ok()) stop(status);
}

struct Options {
  size_t top = 12, search = 0;
  std::string target = "sm_90a", schedule, graph, save;
  bool emit_only = false, compile_only = false, text = false, baseline = false;
  std::vector<std::string> mugraphs;
};

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool more = i + 1 < argc;
    if (argument == "--emit")
      options.emit_only = true;
    else if (argument == "--compile")
      options.compile_only = true;
    else if (argument == "--text")
      options.text = true;
    else if (argument == "--top" && more)
      options.top = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    else if (argument == "--search" && more)
      options.search = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    else if (argument == "--save" && more)
      options.save = argv[++i];
    else if (argument == "--target" && more)
      options.target = argv[++i];
    else if (argument == "--schedule" && more)
      options.schedule = argv[++i];
    else if (argument == "--against" && more)
      options.baseline = std::string(argv[++i]) == "baseline";
    else
      files.push_back(argument);
  }
  if (files.empty() || (files.size() < 2 && options.search == 0))
    stop(Status(ErrorCode::INVALID_ARGUMENT, "wanted: a graph, and at least one muGraph or --search"));
  options.graph = files[0];
  options.mugraphs.assign(files.begin() + 1, files.end());
  return options;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) stop(Status(ErrorCode::NOT_FOUND, path + " cannot be read"));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A muGraph to take schedules of, and what the search's model says of it (nan: it is from a file).
struct Subject {
  std::string label;
  MuGraph mugraph;
  double us = NAN;
};

struct Contestant {
  std::string label;
  Schedule schedule;
  Plan plan;
  double searched_us = NAN, modelled_us = 0;  // by the model of the search, and by that of schedules
  double emit_ms = 0, compile_ms = 0;
  double error = 0;
  std::string wrong;  // empty: right
  std::string resources;
  std::vector<double> hot, cold;
};

double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// "64 registers, 128 bytes on the stack": of every kernel, from the log of ptxas.
std::string resources_of(const std::string& log) {
  std::string out;
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string line = log.substr(at, end - at);
    at = end + 1;
    if (const size_t frame = line.find(" bytes stack frame"); frame != std::string::npos)
      out += line.substr(line.find_first_not_of(" "), frame - line.find_first_not_of(" ")) +
             " bytes on the stack, ";
    if (const size_t used = line.find("Used "); used != std::string::npos)
      out += line.substr(used + 5, line.find(" registers") - used - 5) + " registers; ";
  }
  return out;
}

std::vector<Subject> make_subjects(const Options& options, const Graph& graph, const Target& target) {
  std::vector<Subject> out;
  for (const std::string& file : options.mugraphs)
    out.push_back({file.substr(file.rfind('/') + 1), need(parse_mugraph(read_file(file)))});
  if (options.search == 0) return out;
  SearchOptions how;
  how.results = std::max(how.results, options.search);
  SearchResult result = need(search(graph, target, how));
  std::printf("search: %zu candidates in %.1f s\n", result.candidates.size(), result.report.seconds);
  const std::string file = options.graph.substr(options.graph.rfind('/') + 1);
  for (size_t i = 0; i < std::min(options.search, result.candidates.size()); ++i) {
    const Candidate& candidate = result.candidates[i];
    out.push_back({"search " + std::to_string(i), candidate.mugraph, candidate.us});
    if (options.save.empty()) continue;
    const std::string path =
        options.save + "/" + file.substr(0, file.rfind('.')) + "-" + std::to_string(i) + ".qmu";
    std::ofstream to(path);
    to << print_mugraph(candidate.mugraph);
    if (!to.flush()) stop(Status(ErrorCode::IO, path + " cannot be written"));
  }
  return out;
}

double modelled_us(const MuGraph& mugraph, const Schedule& schedule, const Target& target) {
  const MuGraph applied = need(apply_schedule(mugraph, schedule));
  double us = 0;
  for (size_t k = 0; k < applied.kernels.size(); ++k)
    if (applied.kernels[k].custom)
      us += modelled_time(applied, applied.kernels[k], schedule.kernels[k], target);
  return us;
}

// Adds the best schedules of a muGraph that can be emitted; the reasons why others cannot are counted.
void add_contestants(const Options& options, const Graph& graph, const Subject& subject, const Target& target,
                     Compiler& compiler, std::vector<Contestant>& out) {
  std::vector<Schedule> schedules;
  const double start = milliseconds();
  if (options.schedule.empty())
    schedules = enumerate_schedules(subject.mugraph, target);
  else
    schedules = {need(parse_schedule(read_file(options.schedule)))};
  std::printf("%s: %zu schedules in %.0f ms", subject.label.c_str(), schedules.size(),
              milliseconds() - start);
  std::map<std::string, int> refused;
  size_t made = 0;
  for (const Schedule& schedule : schedules) {
    if (made == options.top) break;
    Contestant contestant;
    contestant.label = subject.label;
    contestant.schedule = schedule;
    contestant.searched_us = subject.us;
    contestant.modelled_us = modelled_us(subject.mugraph, schedule, target);
    const double begin = milliseconds();
    auto emitted = emit_mugraph(graph, subject.mugraph, schedule, target);
    if (!emitted) {
      ++refused[emitted.status().message()];
      continue;
    }
    contestant.emit_ms = milliseconds() - begin;
    if (options.text && made == 0) std::printf("\n%s", emitted->kernels.c_str());
    ++made;
    contestant.plan = std::move(emitted->plan);
    if (!options.emit_only) {
      auto compiled = compiler.compile({emitted->source, target.name, {"--ptxas-options=-v"}});
      if (!compiled) stop(compiled.status().with_context(contestant.label + ", " + print_schedule(schedule)));
      contestant.resources = resources_of(compiled->log);
      contestant.compile_ms = milliseconds() - begin - contestant.emit_ms;
      contestant.plan.cubin = std::move(compiled->cubin);
    }
    out.push_back(std::move(contestant));
  }
  std::printf(", %zu taken\n", made);
  for (const auto& [reason, times] : refused) std::printf("  refused %d times: %s\n", times, reason.c_str());
}

size_t bytes_of(const TensorDesc& desc) { return static_cast<size_t>(desc.span()) * dtype_size(desc.dtype); }

// One set of inputs and outputs on the device.
struct Buffers {
  std::vector<DeviceMemory> memory;
  std::vector<uint64_t> inputs, outputs;
};

class Bench {
 public:
  Bench(const Graph& graph, std::vector<Contestant>& candidates)
      : graph_(graph),
        candidates_(candidates),
        driver_(need(Driver::open())),
        device_(need(Device::open(driver_))) {
    const auto& descs = candidates_[0].plan.inputs;
    size_t bytes = 0, workspace = 256;
    for (size_t i = 0; i < descs.size(); ++i) {
      host_.push_back(random_buffer(descs[i], i + 1, 1.0));
      bytes += bytes_of(descs[i]);
    }
    for (const Contestant& candidate : candidates_)
      workspace = std::max(workspace, static_cast<size_t>(candidate.plan.workspace_bytes));
    workspace_ = need(device_->allocate(workspace));
    const size_t l2 = device_->info().l2_bytes;
    copies_ = std::clamp<size_t>(4 * l2 / bytes + 2, 4, 1000);
    for (size_t copy = 0; copy < copies_; ++copy) sets_.push_back(make_buffers());
    need_driver(driver_->api().stream_create(&stream_, 1), "creating a stream");
    need_driver(driver_->api().event_create(&start_, 0), "creating an event");
    need_driver(driver_->api().event_create(&stop_, 0), "creating an event");
    std::printf("%s, inputs %.1f MB in %zu copies\n", device_->info().name.c_str(),
                static_cast<double>(bytes) / 1e6, copies_);
  }

  void check(bool baseline, Compiler& compiler, const Target& target) {
    std::vector<RealTensor> wanted;
    std::vector<Tolerance> tolerance;
    std::vector<RealTensor> inputs;
    const Graph primitive = decompose(graph_);
    if (baseline) {
      auto emitted = need(emit_baseline(graph_, target));
      Plan plan = emitted.plan;
      plan.cubin = need(compiler.compile({emitted.source, target.name, {}})).cubin;
      if (plan.workspace_bytes > workspace_.size())
        workspace_ = need(device_->allocate(static_cast<size_t>(plan.workspace_bytes)));
      for (const std::string& bytes : run_once(plan))
        wanted.push_back(read_buffer(plan.outputs[wanted.size()], bytes.data()));
    } else {
      for (size_t i = 0; i < host_.size(); ++i)
        inputs.push_back(read_buffer(candidates_[0].plan.inputs[i], host_[i].data()));
      wanted = evaluate_reference(primitive, inputs);
      tolerance = unfused_tolerance(primitive, inputs, wanted, 1);
    }
    for (Contestant& candidate : candidates_) {
      const std::vector<std::string> outputs = run_once(candidate.plan);
      for (size_t o = 0; o < outputs.size(); ++o) {
        const TensorDesc& desc = candidate.plan.outputs[o];
        const RealTensor actual = read_buffer(desc, outputs[o].data());
        if (baseline) {
          double error = 0, size = 0;
          for (size_t e = 0; e < actual.size(); ++e) {
            error += (actual[e] - wanted[o][e]) * (actual[e] - wanted[o][e]);
            size += wanted[o][e] * wanted[o][e];
          }
          candidate.error = std::sqrt(error / size);
          if (!(candidate.error < 5e-3)) candidate.wrong = "far from the baseline";
        } else {
          const Comparison result = compare(desc, actual, wanted[o], tolerance[o]);
          candidate.error = result.error;
          if (!result.acceptable) candidate.wrong = result.what;
        }
      }
    }
  }

  void time(int rounds) {
    struct Timed {
      std::unique_ptr<Launcher> launcher;
      void *hot = nullptr, *cold = nullptr;
    };
    std::vector<Timed> timed(candidates_.size());
    for (size_t i = 0; i < candidates_.size(); ++i) {
      timed[i].launcher =
          std::make_unique<Launcher>(driver_, std::make_shared<const Plan>(candidates_[i].plan));
      need(timed[i].launcher->load(stream_));
      timed[i].hot = capture(*timed[i].launcher, kHotLaunches, 1);
      timed[i].cold = capture(*timed[i].launcher, copies_, copies_);
    }
    for (int round = -2; round < rounds; ++round)
      for (size_t i = 0; i < candidates_.size(); ++i) {
        const double hot = run_graph(timed[i].hot) / kHotLaunches,
                     cold = run_graph(timed[i].cold) / static_cast<double>(copies_);
        if (round < 0) continue;
        candidates_[i].hot.push_back(hot);
        candidates_[i].cold.push_back(cold);
      }
  }

 private:
  static constexpr size_t kHotLaunches = 40;

  void need_driver(int result, const char* what) const { need(driver_->check(result, what)); }

  Buffers make_buffers() {
    Buffers out;
    for (const std::string& bytes : host_) {
      out.memory.push_back(need(device_->allocate(bytes.size())));
      need(out.memory.back().upload(bytes.data(), bytes.size()));
      out.inputs.push_back(out.memory.back().address());
    }
    for (const TensorDesc& desc : candidates_[0].plan.outputs) {
      out.memory.push_back(need(device_->allocate(bytes_of(desc))));
      out.outputs.push_back(out.memory.back().address());
    }
    return out;
  }

  std::vector<std::string> run_once(const Plan& plan) {
    Launcher launcher(driver_, std::make_shared<const Plan>(plan));
    const Buffers& set = sets_[0];
    for (size_t o = 0; o < plan.outputs.size(); ++o) need(set.memory[host_.size() + o].fill(0xff, stream_));
    need(workspace_.fill(0xff, stream_));
    need(launcher.launch({set.inputs, set.outputs, workspace_.address()}, stream_));
    need_driver(driver_->api().stream_synchronize(stream_), "running a candidate");
    std::vector<std::string> out;
    for (size_t o = 0; o < plan.outputs.size(); ++o) {
      out.emplace_back(bytes_of(plan.outputs[o]), '\0');
      need(set.memory[host_.size() + o].download(out.back().data(), out.back().size()));
    }
    return out;
  }

  void* capture(Launcher& launcher, size_t launches, size_t sets) {
    void *graph = nullptr, *executable = nullptr;
    need_driver(driver_->api().capture_begin(stream_, 0), "beginning a capture");
    for (size_t i = 0; i < launches; ++i) {
      const Buffers& set = sets_[i % sets];
      need(launcher.launch({set.inputs, set.outputs, workspace_.address()}, stream_));
    }
    need_driver(driver_->api().capture_end(stream_, &graph), "ending a capture");
    need_driver(driver_->api().graph_instantiate(&executable, graph, 0), "instantiating a graph");
    driver_->api().graph_destroy(graph);
    return executable;
  }

  // Microseconds.
  double run_graph(void* executable) {
    need_driver(driver_->api().event_record(start_, stream_), "recording an event");
    need_driver(driver_->api().graph_launch(executable, stream_), "launching a graph");
    need_driver(driver_->api().event_record(stop_, stream_), "recording an event");
    need_driver(driver_->api().stream_synchronize(stream_), "running a graph");
    float ms = 0;
    need_driver(driver_->api().event_elapsed(&ms, start_, stop_), "reading an event");
    return 1e3 * static_cast<double>(ms);
  }

  const Graph& graph_;
  std::vector<Contestant>& candidates_;
  std::shared_ptr<const Driver> driver_;
  std::unique_ptr<Device> device_;
  std::vector<std::string> host_;
  std::vector<Buffers> sets_;
  DeviceMemory workspace_;
  size_t copies_ = 0;
  void *stream_ = nullptr, *start_ = nullptr, *stop_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const Target& target = *need(find_target(options.target));
  const std::unique_ptr<Compiler> compiler = need(open_nvrtc(""));
  const Graph graph = need(parse_graph(read_file(options.graph)));
  std::vector<Contestant> candidates;
  for (const Subject& subject : make_subjects(options, graph, target))
    add_contestants(options, graph, subject, target, *compiler, candidates);
  if (candidates.empty()) stop(Status(ErrorCode::UNSUPPORTED, "no schedule could be emitted"));
  std::vector<double> compile;
  for (const Contestant& candidate : candidates) compile.push_back(candidate.compile_ms);
  std::printf("%s, %s, NVRTC median %.0f ms, most %.0f ms\n", options.graph.c_str(), target.name,
              median(compile), *std::max_element(compile.begin(), compile.end()));
  if (!options.compile_only && !options.emit_only) {
    Bench bench(graph, candidates);
    bench.check(options.baseline, *compiler, target);
    bench.time(15);
    std::stable_sort(candidates.begin(), candidates.end(), [](const Contestant& a, const Contestant& b) {
      return median(a.cold) < median(b.cold);
    });
  }
  std::printf("%8s %8s %9s %9s %9s %8s %6s  %s\n", "cold us", "hot us", "schedule", "search", "error",
              "nvrtc ms", "right", "muGraph and schedule");
  for (const Contestant& candidate : candidates) {
    std::string schedule = print_schedule(candidate.schedule);
    std::replace(schedule.begin(), schedule.end(), '\n', ';');
    std::printf("%8.2f %8.2f %9.2f %9.2f %9.2e %8.0f %6s  %s: %s %s\n", median(candidate.cold),
                median(candidate.hot), candidate.modelled_us, candidate.searched_us, candidate.error,
                candidate.compile_ms, candidate.wrong.empty() ? "yes" : "NO", candidate.label.c_str(),
                schedule.c_str(), candidate.resources.c_str());
    if (!candidate.wrong.empty()) std::printf("         %s\n", candidate.wrong.c_str());
  }
  return 0;
}
