extern "C" __global__ void __launch_bounds__(256) q0_block(const f16* __restrict__ t0, const f16* __restrict__ t1, f16* __restrict__ t2) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  const int first1 = int(blockIdx.x) * 4;
  const int first1_left = min(7, int(blockIdx.x) * 4 + 4) - first1;
  const int i6 = lane >> 2 & 7;
  const int i7 = (lane & 3) * 4;
  const int i13 = (lane & 3) * 2;
  float a_2[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    a_2[r] = 0.000000000e+00f;
  }
  f16 next_x0_4[4] = {};
  f16 x0_4[4] = {};
  f16 next_w0_9[4] = {};
  f16 w0_9[4] = {};
  float q_11[1];
  q_11[0] = 0.000000000e+00f;
#pragma unroll 1
  for (int step = 0; step < 4; ++step) {
    if (step < 3) {
      const int iteration = step;
      const int first0 = iteration * 4;
      const int first0_left = min(11, iteration * 4 + 4) - first0;
      const f16* const at5 = t0 + static_cast<long long>(first0);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        next_x0_4[r] = i6 < 3 && i7 + (r & 3) < first0_left ? at5[i6 * 11 + i7 + (r & 3)] : f16{};
      }
      const f16* const at10 = t1 + static_cast<long long>(first0) * 7 + static_cast<long long>(first1);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        next_w0_9[r] = i7 + (r & 3) < first0_left && i6 < first1_left ? at10[(i7 + (r & 3)) * 7 + i6] : f16{};
      }
    }
    if (0 < step) {
      const int iteration = step - 1;
      const int first0 = iteration * 4;
      const int first0_left = min(11, iteration * 4 + 4) - first0;
      unsigned x0__pairs3[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        x0__pairs3[w] = pack<f16>(to_float(x0_4[w * 2]), to_float(x0_4[w * 2 + 1]));
      }
      unsigned w0__pairs8[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        w0__pairs8[w] = pack<f16>(to_float(w0_9[w * 2]), to_float(w0_9[w * 2 + 1]));
      }
      mma_fragment<f16, true>(&a_2[0], &x0__pairs3[0], &w0__pairs8[0]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (i7 + (r & 3) < first0_left) {
          q_11[0] = q_11[0] + to_float(x0_4[r]) * to_float(x0_4[r]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      x0_4[r] = next_x0_4[r];
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      w0_9[r] = next_w0_9[r];
    }
  }
  float q_15[1];
  q_15[0] = q_11[0];
  q_15[0] = q_15[0] + shuffle_xor(q_15[0], 1);
  q_15[0] = q_15[0] + shuffle_xor(q_15[0], 2);
  float rms_14[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rms_14[r] = sqrt_fast(__fadd_rn(divide_common(q_15[0], 1.100000000e+01f), 9.999999747e-06f));
  }
  f16* const to12 = t2 + static_cast<long long>(first1);
  if ((warp & 7) == 0) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (i6 + (c >> 1 & 1) * 8 < 3 && i13 + (c & 1) < first1_left) {
        to12[(i6 + (c >> 1 & 1) * 8) * 7 + i13 + (c & 1)] = from_float<f16>(divide_fast(a_2[c], rms_14[c >> 1 & 1]));
      }
    }
  }
}

