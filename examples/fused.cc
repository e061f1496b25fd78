// The gated MLP and the attention of fused.c, by quern.hpp: run on the GPU and compared with a reference; without a GPU, on the emulator.
//   c++ -std=c++17 fused.cc $(pkg-config --cflags --libs quern) -ldl -o fused
#include "fused.h"

#include <functional>
#include <iostream>
#include <quern.hpp>
#include <vector>

namespace {

constexpr int kRows = 16, kWidth = 128, kHidden = 256, kHeads = 2, kQueries = 32, kKeys = 64, kDepth = 64;

using Numbers = std::vector<double>;

cuda driver;
bool has_gpu;

void need(int cuda_error) {
  if (cuda_error) throw std::runtime_error("CUDA error " + std::to_string(cuda_error));
}

// Device memory.
class Buffer {
 public:
  explicit Buffer(size_t bytes) { need(driver.cuMemAlloc(&address_, bytes)); }
  Buffer(Buffer&& other) noexcept : address_(std::exchange(other.address_, 0)) {}
  ~Buffer() {
    if (address_) driver.cuMemFree(address_);
  }
  uint64_t address() const { return address_; }
  void* pointer() const { return reinterpret_cast<void*>(address_); }

 private:
  uint64_t address_ = 0;
};

struct Workload {
  const char* name;
  quern::Graph graph;
  std::function<Numbers(const std::vector<Numbers>&)> reference;
};

// y = (silu(x w1) * (x w3)) w2
Workload mlp() {
  quern::Graph graph("mlp");
  const auto weight = [&](const char* name, int64_t rows, int64_t columns) {
    return graph.input(name, QUERN_F16, {rows, columns}, QUERN_INPUT_CONST);
  };
  const auto x = graph.input("x", QUERN_F16, {kRows, kWidth});
  const auto w1 = weight("w1", kWidth, kHidden), w3 = weight("w3", kWidth, kHidden), w2 = weight("w2", kHidden, kWidth);
  const auto gate = graph.op("silu", {graph.op("matmul", {x, w1})});
  graph.output(graph.op("matmul", {graph.op("mul", {gate, graph.op("matmul", {x, w3})}), w2}));
  return {"mlp", std::move(graph), [](const std::vector<Numbers>& in) {
            Numbers gate(kRows * kHidden), up(kRows * kHidden), out(kRows * kWidth);
            multiply(in[0].data(), in[1].data(), gate.data(), kRows, kWidth, kHidden, 0);
            multiply(in[0].data(), in[2].data(), up.data(), kRows, kWidth, kHidden, 0);
            for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
            multiply(gate.data(), in[3].data(), out.data(), kRows, kHidden, kWidth, 0);
            return out;
          }};
}

// o = softmax(q k' / sqrt(depth)) v, for each head
Workload attention() {
  quern::Graph graph("attention");
  const int64_t swapped[] = {0, 2, 1}, last = -1;
  const auto q = graph.input("q", QUERN_F16, {kHeads, kQueries, kDepth}), k = graph.input("k", QUERN_F16, {kHeads, kKeys, kDepth}),
             v = graph.input("v", QUERN_F16, {kHeads, kKeys, kDepth});
  const auto scores = graph.op("matmul", {q, graph.op("transpose", {k}, {quern_attr_ints("perm", swapped, 3)})});
  const auto weights = graph.op("softmax", {graph.op("mul", {scores, 1 / std::sqrt(double{kDepth})})}, {quern_attr_ints("axis", &last, 1)});
  graph.output(graph.op("matmul", {weights, v}));
  return {"attention", std::move(graph), [](const std::vector<Numbers>& in) {
            Numbers out(kHeads * kQueries * kDepth);
            for (int head = 0; head < kHeads; ++head) {
              Numbers scores(kQueries * kKeys);
              multiply(&in[0][head * kQueries * kDepth], &in[1][head * kKeys * kDepth], scores.data(), kQueries, kDepth, kKeys, 1);
              for (int i = 0; i < kQueries; ++i) {
                double sum = 0, *row = &scores[i * kKeys];
                for (int j = 0; j < kKeys; ++j) sum += row[j] = std::exp(row[j] / std::sqrt(double{kDepth}));
                for (int j = 0; j < kKeys; ++j) row[j] /= sum;
              }
              multiply(scores.data(), &in[2][head * kKeys * kDepth], &out[head * kQueries * kDepth], kQueries, kKeys, kDepth, 0);
            }
            return out;
          }};
}

// Whether the plan's output is right.
bool run(const Workload& work, const quern::Plan& plan) {
  const quern_plan_info info = plan.info();
  std::vector<Buffer> buffers;
  std::vector<void*> pointers;
  std::vector<Numbers> inputs;
  for (size_t i = 0; i < info.input_count; ++i) {
    std::vector<uint16_t> host(plan.input(i).bytes / 2);
    fill(host.data(), host.size(), 0.5f);
    buffers.emplace_back(host.size() * 2);
    pointers.push_back(buffers.back().pointer());
    need(driver.cuMemcpyHtoD(buffers.back().address(), host.data(), host.size() * 2));
    inputs.emplace_back();
    for (const uint16_t half : host) inputs.back().push_back(from_half(half));
  }
  std::vector<uint16_t> got(plan.output(0).bytes / 2);
  const Buffer out(got.size() * 2), workspace(info.workspace_bytes ? info.workspace_bytes : 256);
  quern::Plan(plan).launch(nullptr, pointers, {out.pointer()}, info.workspace_bytes ? workspace.pointer() : nullptr);
  need(driver.cuMemcpyDtoH(got.data(), out.address(), got.size() * 2));
  return compare(work.name, got.data(), work.reference(inputs).data(), got.size()) == 0;
}

}  // namespace

int main() try {
  has_gpu = cuda_open(&driver);
  quern::Client client;
  bool right = true;
  for (const Workload& work : {mlp(), attention()}) {
    const quern::Plan plan = client.get(work.graph, has_gpu ? nullptr : "sm_90a");
    right = (has_gpu ? run(work, plan) : run_emulated(std::string(work.graph.text()).c_str()) == 0) && right;
  }
  return right ? 0 : 1;
} catch (const std::exception& problem) {
  std::cerr << problem.what() << "\n";
  return 1;
}
