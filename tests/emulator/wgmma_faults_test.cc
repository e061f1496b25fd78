// The rules of warpgroup products, each broken once: A[64, 16] has x in its first column, B[16, 8] one 1, so
// that the first column of the product is x.
#include "tests/emulator/fault_cases.h"

namespace quern::emulated {

namespace {

// What stands between writing the operands and storing the result; `a`, `b` and `sums` are there.
struct Planted {
  const char *name, *text, *rule;
};

const char kHead[] = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  f16* a = dynamic_shared<f16>();
  f16* b = a + 64 * 16;
  for (int i = threadIdx.x; i < 64 * 16; i += 128)
    a[swizzled<8>(i)] = from_float<f16>(i % 16 == 0 ? x[blockIdx.x * 64 + i / 16] : 0.0f);
  b[swizzled<8>(threadIdx.x)] = from_float<f16>(threadIdx.x == 0 ? 1.0f : 0.0f);
  const SharedOperand<32, false, 0, 256> left{a}, right{b};
  float sums[4] = {};
)";
const char kTail[] = R"(
  if (lane_index() % 4 == 0) {
    const int row = blockIdx.x * 64 + threadIdx.x / 32 * 16 + lane_index() / 4;
    y[row] = sums[0];
    y[row + 8] = sums[2];
  }
})";

const Planted kPlanted[] = {
    {"no proxy fence behind ordinary writes",
     R"(
  @fence_proxy_async();@@
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "with no fence_proxy_async behind it"},
    {"a proxy fence by one warp for all",
     R"(
  @@if (threadIdx.x < 32) @fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "with no fence_proxy_async behind it"},
    {"no barrier between warps that write and read",
     R"(
  fence_proxy_async();
  @__syncthreads();@__syncwarp();@
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "dynamic shared memory"},
    {"sums read before the wait",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  @wgmma_wait<0>();@@
  sums[0] += 0.0f;
  @@wgmma_wait<0>();@
)",
     "sums of a wgmma with no wgmma_wait before"},
    {"a wait that lets the last group go on",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<@0@1@>();
  sums[0] += 0.0f;
)",
     "sums of a wgmma with no wgmma_wait before"},
    {"a product in no group",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  @wgmma_commit();@@
  wgmma_wait<0>();
  sums[0] += 0.0f;
)",
     "sums of a wgmma with no wgmma_wait before"},
    {"no fence before the first product",
     R"(
  fence_proxy_async();
  __syncthreads();
  @wgmma_fence();@@
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "no wgmma_fence before"},
    {"no fence behind ordinary use of the sums",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 4; ++i) sums[i] *= 0.5f;
  @wgmma_fence();@@
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 4; ++i) sums[i] /= 1.5f;
)",
     "with no wgmma_fence between"},
    {"an operand overwritten before the wait",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  @wgmma_wait<0>();@@
  __syncthreads();
  if (threadIdx.x == 0) a[0] = f16{};
  @@wgmma_wait<0>();@
)",
     "which a wgmma still reads"},
    {"an operand overwritten while another warp may be behind",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
  @__syncthreads();@@
  if (threadIdx.x == 0) b[0] = f16{};
)",
     "dynamic shared memory"},
    {"fragments overwritten before the wait",
     R"(
  fence_proxy_async();
  __syncthreads();
  unsigned fragments[4];
  const f16* row = a + swizzled<8>((threadIdx.x / 32 * 16 + lane_index() % 16) * 16 + lane_index() / 16 * 8);
  ldmatrix_at<4>(fragments, row);
  wgmma_fence();
  wgmma<f16, 8>(sums, fragments, right);
  wgmma_commit();
  @wgmma_wait<0>();@@
  fragments[1] = 0;
  @@wgmma_wait<0>();@
)",
     "registers that a wgmma reads"},
    {"fragments written behind the fence",
     R"(
  fence_proxy_async();
  __syncthreads();
  unsigned fragments[4];
  const f16* row = a + swizzled<8>((threadIdx.x / 32 * 16 + lane_index() % 16) * 16 + lane_index() / 16 * 8);
  @@wgmma_fence();@
  ldmatrix_at<4>(fragments, row);
  @wgmma_fence();@@
  wgmma<f16, 8>(sums, fragments, right);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "with no wgmma_fence between"},
    {"warps of a group that ask for different products",
     R"(
  fence_proxy_async();
  __syncthreads();
  const SharedOperand<32, false, 0, 256> own{@b@threadIdx.x < 64 ? b : a@};
  wgmma_fence();
  wgmma<f16, 8>(sums, left, own);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "different products"},
    {"a warp of a group that asks for nothing",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
  float more[4] = {};
  wgmma_fence();
  @@if (threadIdx.x >= 32) @wgmma<f16, 8>(more, left, right);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "different numbers of products"},
    {"an operand that begins between two groups of eight rows",
     R"(
  fence_proxy_async();
  __syncthreads();
  const SharedOperand<32, false, 0, 256> own{a@@ + 16@};
  wgmma_fence();
  wgmma<f16, 8>(sums, own, right);
  wgmma_commit();
  wgmma_wait<0>();
)",
     "does not begin at the first of eight rows"},
    {"products that nobody waits for",
     R"(
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
  wgmma<f16, 8>(sums, left, right);
  wgmma_commit();
  wgmma_wait<0>();
  float more[4] = {};
  wgmma_fence();
  wgmma<f16, 8>(more, left, right);
  wgmma_commit();
  @wgmma_wait<0>();@@
)",
     "that it did not wait for"},
};

}  // namespace

}  // namespace quern::emulated

int main() {
  using namespace quern::emulated;
  std::vector<FaultCase> cases;
  for (const Planted& planted : kPlanted)
    cases.push_back({.name = planted.name,
                     .text = std::string(kHead) + planted.text + kTail,
                     .rule = planted.rule,
                     .value = same,
                     .block = {128},
                     .shared_bytes = 2304});
  return run_fault_cases("wgmma faults", cases);
}
