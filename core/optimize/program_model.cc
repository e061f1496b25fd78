#include "core/optimize/program_model.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "core/codegen/baseline.h"
#include "core/codegen/library_step.h"
#include "core/schedule/cache_model.h"

namespace quern {

namespace {

struct Buffer {
  int64_t number;
  bool output;
};

// `number` gives a buffer its number in the cache.
template <class Number>
void add_launches(const std::vector<LaunchWork>& launches, CacheModel& cache, Number number,
                  std::vector<LaunchWork>& out) {
  for (LaunchWork work : launches) {
    for (const BufferAccess& access : work.accesses) {
      const auto [buffer, output] = number(access.buffer);
      const double bytes =
          access.written ? cache.write(buffer, access.bytes, output) : cache.read(buffer, access.bytes);
      work.block.unique_bytes += bytes;
      if (!access.written) work.block.fresh_bytes += bytes;
    }
    out.push_back(std::move(work));
  }
}

// Where the launch ends that begins with this one.
size_t launch_end(const std::vector<LaunchWork>& launches, size_t first) {
  size_t end = first + 1;
  while (end < launches.size() && launches[end].joined) ++end;
  return end;
}

KernelTime launch_time(const std::vector<LaunchWork>& launches, size_t first, const Target& target) {
  std::vector<BlockWork> works;
  std::vector<KernelSchedule> schedules;
  for (size_t i = first; i < launch_end(launches, first); ++i) {
    works.push_back(launches[i].block);
    schedules.push_back(launches[i].schedule);
  }
  return works.size() == 1 ? modelled_block(works[0], schedules[0], target)
                           : modelled_joined(works, schedules, target);
}

}  // namespace

Result<std::vector<LaunchWork>> baseline_work(const Graph& graph, const Target& target) {
  auto emitted = emit_baseline(graph, target);
  if (!emitted) return emitted.status();
  CacheModel cache(target);
  std::vector<LaunchWork> out;
  add_launches(
      emitted->work, cache,
      [](const LaunchArg& arg) {
        return Buffer{arg.value * 4 + static_cast<int64_t>(arg.kind), arg.kind == LaunchArg::Kind::output};
      },
      out);
  return out;
}

double modelled_launches(const std::vector<LaunchWork>& launches, const Target& target) {
  double us = 0;
  for (size_t i = 0; i < launches.size(); i = launch_end(launches, i))
    us += launch_time(launches, i, target).us;
  return us;
}

Result<ProgramModel> ProgramModel::make(const Graph& graph, const MuGraph& mugraph, const Target& target) {
  ProgramModel out(mugraph, target);
  const std::vector<Step> steps = steps_of(mugraph);
  const std::vector<TensorLife> lives = tensor_lives(mugraph, steps);
  std::vector<Ints> strides;
  for (const MuTensor& tensor : mugraph.tensors) strides.push_back(dense_strides(tensor.type.shape));
  const std::vector<TensorDesc> inputs = graph.input_descs();
  for (size_t i = 0; i < mugraph.inputs.size(); ++i)
    strides[static_cast<size_t>(mugraph.inputs[i])] = inputs.at(i).strides;
  CacheModel cache(target);
  for (const Step& step : steps) {
    if (mugraph.kernels[step.first].custom) {
      for (const BlockOp& op : mugraph.kernels[step.first].ops)
        for (int32_t tensor : op.has_access() ? memory_of(mugraph, op.tensor()) : std::vector<int32_t>())
          cache.read(tensor, bytes_of(mugraph.tensors[static_cast<size_t>(tensor)].type));
      continue;
    }
    auto library = library_step(mugraph, step, lives, strides);
    if (!library) return library.status();
    if (library->outputs.empty()) continue;
    auto emitted = emit_baseline(library->graph, target);
    if (!emitted) return emitted.status();
    const auto count = static_cast<int64_t>(mugraph.tensors.size());
    auto number = [&](const LaunchArg& arg) {
      if (arg.kind == LaunchArg::Kind::workspace) return Buffer{count + arg.value, false};
      const bool input = arg.kind == LaunchArg::Kind::input;
      const int32_t tensor = (input ? library->inputs : library->outputs)[static_cast<size_t>(arg.value)];
      return Buffer{
          tensor, std::find(mugraph.outputs.begin(), mugraph.outputs.end(), tensor) != mugraph.outputs.end()};
    };
    add_launches(emitted->work, cache, number, out.library_);
    out.written_.resize(out.library_.size(), {step.first, library->outputs});
  }
  return out;
}

std::string ProgramModel::print(const Schedule& schedule) const {
  const MuGraph cut = applied(schedule);
  std::string out;
  auto line = [&](const std::vector<int32_t>& written, double blocks, const KernelTime& time) {
    std::string names;
    for (int32_t tensor : written)
      names += (names.empty() ? "" : ", ") + cut.tensors[static_cast<size_t>(tensor)].name;
    char text[200];
    std::snprintf(text, sizeof text,
                  ": %.2f us (memory %.2f, compute %.2f), %.0f blocks, %ld of them an SM, %.0f registers\n",
                  time.us, time.memory_us, time.compute_us, blocks, static_cast<long>(time.blocks_per_sm),
                  time.registers);
    out += "launch that writes " + names + text;
  };
  size_t library = 0;
  for (size_t k = 0; k < cut.kernels.size(); ++k) {
    for (; library < library_.size() && written_[library].first == k;
         library = launch_end(library_, library)) {
      double blocks = 0;
      for (size_t part = library; part < launch_end(library_, library); ++part)
        blocks += library_[part].block.blocks;
      line(written_[library].second, blocks, launch_time(library_, library, target_));
    }
    if (!cut.kernels[k].custom || launch_of(schedule, k).end != k + 1) continue;
    std::vector<int32_t> written;
    double blocks = 0;
    for (size_t part = launch_of(schedule, k).first; part <= k; ++part) {
      const MuKernel& kernel = cut.kernels[part];
      for (const BlockOp& op : kernel.ops)
        if (op.is_store()) written.push_back(op.tensor());
      blocks += block_work(cut, kernel, schedule.kernels[part], target_).blocks;
    }
    line(written, blocks, launches_.of(cut, schedule, k));
  }
  return out;
}

Result<double> ProgramModel::us(const Schedule& schedule) const {
  const auto custom = launches_.of_all(mugraph_, schedule);
  if (!custom) return custom;
  return *custom + modelled_launches(library_, target_);
}

double ProgramModel::us(const MuGraph& applied, const Schedule& schedule) const {
  return launches_.sum(applied, schedule) + modelled_launches(library_, target_);
}

double SubgraphModel::operator()(const Graph& graph, const MuGraph* mugraph) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (!mugraph) {
    const auto work = baseline_work(graph, target_);
    return work ? modelled_launches(*work, target_) : kNever;
  }
  const auto model = ProgramModel::make(graph, *mugraph, target_);
  const std::vector<Schedule> schedules = schedules_.enumerate(*mugraph, 1);
  if (!model || schedules.empty()) return kNever;
  const auto us = model->us(schedules[0]);
  return us ? *us : kNever;
}

}  // namespace quern
