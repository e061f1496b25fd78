extern "C" __global__ void __launch_bounds__(128) q0_block(const f16* __restrict__ t0, const f16* __restrict__ t1, const f16* __restrict__ t2, f16* __restrict__ t3) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  unsigned char* const shared = dynamic_shared<unsigned char>();
  const int first1 = int(blockIdx.x) * 3;
  const int i6 = lane >> 2 & 7;
  const int i7 = (lane & 3) * 4;
  const int i8 = swizzled<8>((lane & 31) * 4);
  const int i9 = swizzled<8>((lane & 7) * 16 + (lane >> 3 & 1) * 8);
  const int i12 = (lane >> 3 & 3) + (warp & 3) * 4;
  const int i13 = lane & 7;
  const int i14 = (lane & 31) + (warp & 3) * 32;
  const int i17 = (lane & 15) * 8;
  const int i24 = (lane & 3) * 2;
  float g_2[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    g_2[r] = 0.000000000e+00f;
  }
  float u_18[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    u_18[r] = 0.000000000e+00f;
  }
#pragma unroll 1
  for (int step = -1; step < 2; ++step) {
    cp_async_wait<0>();
    __syncthreads();
    if (step + 1 < 2) {
      const int iteration = step + 1;
      unsigned char* const stage = shared + iteration % 2 * 768;
      f16* const tile_x0_4 = reinterpret_cast<f16*>(stage);
      f16* const tile_a0_10 = reinterpret_cast<f16*>(stage + 256);
      f16* const tile_b0_19 = reinterpret_cast<f16*>(stage + 512);
      const int first0 = iteration * 4;
      const f16* const at5 = t0 + static_cast<long long>(first0);
      if ((warp & 3) == 0) {
        {
          const bool inside = i6 < 3 && i7 < 4;
          cp_async<8>(tile_x0_4 + swizzled_sum<8>(i8, 0), at5 + (inside ? i6 * 8 + i7 : 0), inside ? 8 : 0);
        }
      }
      const f16* const at11 = t1 + static_cast<long long>(first0) * 6 + static_cast<long long>(first1);
      tile_a0_10[i14] = i12 < 4 && i13 < 3 ? at11[i12 * 6 + i13] : f16{};
      const f16* const at20 = t2 + static_cast<long long>(first0) * 6 + static_cast<long long>(first1);
      tile_b0_19[i14] = i12 < 4 && i13 < 3 ? at20[i12 * 6 + i13] : f16{};
    }
    cp_async_commit();
    if (step < 0) {
      continue;
    }
    const int iteration = step;
    unsigned char* const stage = shared + iteration % 2 * 768;
    f16* const tile_x0_4 = reinterpret_cast<f16*>(stage);
    f16* const tile_a0_10 = reinterpret_cast<f16*>(stage + 256);
    f16* const tile_b0_19 = reinterpret_cast<f16*>(stage + 512);
    const int first0 = iteration * 4;
    unsigned x0__pairs3[2];
    ldmatrix_at<2>(&x0__pairs3[0], tile_x0_4 + swizzled_sum<8>(i9, 0));
    unsigned a0__pairs16[2];
    ldmatrix_trans_at<2>(&a0__pairs16[0], tile_a0_10 + i17);
    mma_fragment<f16, true>(&g_2[0], &x0__pairs3[0], &a0__pairs16[0]);
    unsigned b0__pairs22[2];
    ldmatrix_trans_at<2>(&b0__pairs22[0], tile_b0_19 + i17);
    mma_fragment<f16, true>(&u_18[0], &x0__pairs3[0], &b0__pairs22[0]);
  }
  cp_async_wait<0>();
  f16* const to23 = t3 + static_cast<long long>(first1);
  if ((warp & 3) == 0) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (i6 + (c >> 1 & 1) * 8 < 3 && i24 + (c & 1) < 3) {
        to23[(i6 + (c >> 1 & 1) * 8) * 6 + i24 + (c & 1)] = from_float<f16>(divide_fast(g_2[c], __fadd_rn(1.000000000e+00f, exp_fast(-g_2[c]))) * u_18[c]);
      }
    }
  }
}

