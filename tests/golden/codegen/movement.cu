// workspace: 0 bytes
// q0_rows<<<1, 128>>>(input 1, input 0, output 0, output 1)

// d, e
extern "C" __global__ void __launch_bounds__(128) q0_rows(const int* __restrict__ p0, const int* __restrict__ p1, int* __restrict__ p2, int* __restrict__ p3) {
  const unsigned t = blockIdx.x * 128 + threadIdx.x;
  if (4 <= t) {
    return;
  }
  int r0[1];
  r0[0] = 0;
  for (unsigned j = 0; j < 12; ++j) {
    const unsigned i0 = (t + j * 8 + 4) % 10;
    const unsigned i1 = (t + j * 8 + 4) / 10;
    const bool g0 = i0 - 6 < 4;
    const int x0 = g0 ? p0[i0 * 10 + i1 - 60] : 0;
    const bool g1 = i0 < 6;
    const int x1 = g1 ? p1[i0 * 10 + i1] : 0;
    const int x2 = g1 ? x1 : x0;
    r0[0] = wrap_add(r0[0], x2);
    p2[t + j * 4] = x2;
  }
  p3[t] = r0[0];
}

