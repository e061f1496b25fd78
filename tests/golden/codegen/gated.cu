// workspace: 131072 bytes
// q0_matmul<<<16, 128>>>(input 0, input 1, workspace 0)
// q0_matmul<<<16, 128>>>(input 0, input 2, workspace 65536)
// q1_rows<<<32, 128>>>(workspace 0, workspace 65536, output 0)

// matmul
extern "C" __global__ void __launch_bounds__(128) q0_matmul(const f16* __restrict__ p0, const f16* __restrict__ p1, float* p2) {
  grid_wait();
  const unsigned block = blockIdx.x;
  const unsigned column = block % 4 * 128;
  const unsigned row = 0;
  const unsigned z = block / 4;
  __shared__ __align__(16) unsigned char shared[tile_bytes<MmaTile<f16, 16, 128, 32, 1, 4, 3, 8, true, 8, true>>()];
  float* const sums = multiply_tile<MmaTile<f16, 16, 128, 32, 1, 4, 3, 8, true, 8, true>>(shared, StridedMatrix<f16>{p0 + z * 256, 8, 256, 1024, 1}, StridedMatrix<f16>{p1 + z * 131072, 256, 512, 512, 1}, row, column);
#pragma unroll 1
  for (int e = int(threadIdx.x); e < 512; e += 128) {
    const unsigned m = row + e / 32;
    const unsigned n = column / 4 + e % 32;
    if (8 <= m) {
      continue;
    }
    float* const product = sums + e / 32 * tile_pitch<MmaTile<f16, 16, 128, 32, 1, 4, 3, 8, true, 8, true>>() + e % 32 * 4;
    Vector<float, 4> y0;
#pragma unroll
    for (unsigned v = 0; v < 4; ++v) {
      y0[v] = product[v];
    }
    store_vector<float, 4>(p2 + z * 4096 + m * 512 + n * 4, y0);
  }
  grid_launch_dependents();
}

// g, u, o
extern "C" __global__ void __launch_bounds__(128) q1_rows(const float* p0, const float* p1, f16* p2) {
  grid_wait();
  const unsigned t = blockIdx.x * 128 + threadIdx.x;
  if (4096 <= t) {
    return;
  }
  float r0[1];
  r0[0] = 0.000000000e+00f;
  float r1[1];
  r1[0] = 0.000000000e+00f;
  for (unsigned j = 0; j < 4; ++j) {
    const float x0 = p0[t + j * 4096];
    r0[0] = r0[0] + x0;
    const float x1 = p1[t + j * 4096];
    r1[0] = r1[0] + x1;
  }
  const float x2 = divide_fast(r0[0], __fadd_rn(1.000000000e+00f, exp_fast(-r0[0])));
  const float x3 = x2 * r1[0];
  p2[t] = from_float<f16>(x3);
  grid_launch_dependents();
}

