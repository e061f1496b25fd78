extern "C" __global__ void __launch_bounds__(128) q0_block(const f16* __restrict__ t0, const f16* __restrict__ t1, const f16* __restrict__ t2, f16* __restrict__ t3) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  unsigned char* const shared = dynamic_shared<unsigned char>();
  const int first1 = int(blockIdx.x) * 3;
  const int i7 = lane >> 2 & 7;
  const int i8 = (lane & 3) * 4;
  const int i9 = swizzled<8>((lane & 31) * 4);
  const int i10 = swizzled<8>((lane & 7) * 16 + (lane >> 3 & 1) * 8);
  const int i13 = (lane >> 3 & 3) + (warp & 3) * 4;
  const int i14 = lane & 7;
  const int i15 = (lane & 31) + (warp & 3) * 32;
  const int i18 = (lane & 15) * 8;
  const int i25 = (lane & 3) * 2;
  float g_2[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    g_2[r] = 0.000000000e+00f;
  }
  float u_19[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    u_19[r] = 0.000000000e+00f;
  }
#pragma unroll 1
  for (int step = -1; step < 2; ++step) {
    cp_async_wait<0>();
    __syncthreads();
    if (step + 1 < 2) {
      const int iteration = step + 1;
      unsigned char* const stage = shared + iteration % 2 * 768;
      f16* const tile_x0_4 = reinterpret_cast<f16*>(stage);
      f16* const tile_a0_11 = reinterpret_cast<f16*>(stage + 256);
      f16* const tile_b0_20 = reinterpret_cast<f16*>(stage + 512);
      const int first0 = iteration * 4;
      const f16* const at5 = t0 + static_cast<long long>(first0);
      if ((warp & 3) == 0) {
        const f16* const own6 = at5 + i7 * 8 + i8;
        cp_async<8>(tile_x0_4 + swizzled_sum<8>(i9, 0), own6, i7 < 3 && i8 < 4 ? 8 : 0);
      }
      const f16* const at12 = t1 + static_cast<long long>(first0) * 6 + static_cast<long long>(first1);
      tile_a0_11[i15] = i13 < 4 && i14 < 3 ? at12[i13 * 6 + i14] : f16{};
      const f16* const at21 = t2 + static_cast<long long>(first0) * 6 + static_cast<long long>(first1);
      tile_b0_20[i15] = i13 < 4 && i14 < 3 ? at21[i13 * 6 + i14] : f16{};
    }
    cp_async_commit();
    if (step < 0) {
      continue;
    }
    const int iteration = step;
    unsigned char* const stage = shared + iteration % 2 * 768;
    f16* const tile_x0_4 = reinterpret_cast<f16*>(stage);
    f16* const tile_a0_11 = reinterpret_cast<f16*>(stage + 256);
    f16* const tile_b0_20 = reinterpret_cast<f16*>(stage + 512);
    const int first0 = iteration * 4;
    unsigned x0__pairs3[2];
    ldmatrix_at<2>(&x0__pairs3[0], tile_x0_4 + swizzled_sum<8>(i10, 0));
    unsigned a0__pairs17[2];
    ldmatrix_trans_at<2>(&a0__pairs17[0], tile_a0_11 + i18);
    mma_fragment<f16, true>(&g_2[0], &x0__pairs3[0], &a0__pairs17[0]);
    unsigned b0__pairs23[2];
    ldmatrix_trans_at<2>(&b0__pairs23[0], tile_b0_20 + i18);
    mma_fragment<f16, true>(&u_19[0], &x0__pairs3[0], &b0__pairs23[0]);
  }
  cp_async_wait<0>();
  f16* const to24 = t3 + static_cast<long long>(first1);
  if ((warp & 3) == 0) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (i7 + (c >> 1 & 1) * 8 < 3 && i25 + (c & 1) < 3) {
        to24[(i7 + (c >> 1 & 1) * 8) * 6 + i25 + (c & 1)] = from_float<f16>(divide_fast(g_2[c], __fadd_rn(1.000000000e+00f, exp_fast(-g_2[c]))) * u_19[c]);
      }
    }
  }
}

