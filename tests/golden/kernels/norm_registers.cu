extern "C" __global__ void __launch_bounds__(128) q0_block(const f16* __restrict__ t0, const f16* __restrict__ t1, f16* __restrict__ t2) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  unsigned char* const shared = dynamic_shared<unsigned char>();
  float* const s19 = reinterpret_cast<float*>(shared);
  const int first1 = int(blockIdx.x) * 64;
  const int i6 = lane >> 2 & 7;
  const int i7 = (lane & 3) * 4 + (warp & 1) * 32 + (warp >> 1 & 1) * 16;
  const int i11 = (lane >> 2 & 7) * 8;
  const int i15 = (lane >> 3 & 3) + (warp & 3) * 4;
  const int i16 = (lane & 7) * 8;
  const int i20 = (lane & 7) * 4 ^ (lane & 24) * 16;
  const int i21 = (lane & 14) * 2 ^ (lane & 16) * 8 ^ (lane & 1) * 16 ^ (lane & 1) * 512 ^ (warp & 2) * 16 ^ (warp & 1) * 256;
  float a_2[32];
#pragma unroll
  for (int r = 0; r < 32; ++r) {
    a_2[r] = 0.000000000e+00f;
  }
  unsigned next_x0_4[4] = {};
  unsigned x0_4[4] = {};
  unsigned next_w0_9[16] = {};
  unsigned w0_9[16] = {};
  float q_12[1];
  q_12[0] = 0.000000000e+00f;
  unsigned next_x0_13[4] = {};
  unsigned x0_13[4] = {};
#pragma unroll 1
  for (int step = 0; step < 9; ++step) {
    if (step < 8) {
      const int iteration = step;
      const int first0 = iteration * 64;
      const f16* const at5 = t0 + static_cast<long long>(first0);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        load_elements<f16, 4, false>(&next_x0_4[r * 2], at5 + (i6 + (r & 1) * 8) * 512 + i7, true);
      }
      const f16* const at10 = t1 + static_cast<long long>(first0) * 128 + static_cast<long long>(first1);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        load_elements<f16, 8, true>(&next_w0_9[r * 4], at10 + (i7 + (r & 3)) * 128 + i11, true);
      }
      const f16* const at14 = t0 + static_cast<long long>(first0);
      load_elements<f16, 8, false>(&next_x0_13[0], at14 + i15 * 512 + i16, true);
    }
    if (0 < step) {
      const int iteration = step - 1;
      const int first0 = iteration * 64;
      unsigned x0__pairs3[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        x0__pairs3[w] = x0_4[(w & 1) * 2 + (w >> 1 & 1)];
      }
      unsigned w0__pairs8[16];
#pragma unroll
      for (int w = 0; w < 16; ++w) {
        w0__pairs8[w] = join_halves(w0_9, (w * 2 & 3) * 8 + (w * 2 >> 2 & 7), (w * 2 + 1 & 3) * 8 + (w * 2 + 1 >> 2 & 7));
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        mma_fragment<f16, false>(&a_2[n * 4], &x0__pairs3[0], &w0__pairs8[n * 2]);
      }
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        q_12[0] = q_12[0] + to_float(half_at<f16>(x0_13, r)) * to_float(half_at<f16>(x0_13, r));
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      x0_4[r] = next_x0_4[r];
    }
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      w0_9[r] = next_w0_9[r];
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      x0_13[r] = next_x0_13[r];
    }
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    Vector<float, 4> v;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = (j & 3) * 4 + (c & 3) + (c >> 2 & 1) * 16;
      v[j] = a_2[r];
    }
    store_vector<float, 4>(s19 + (i20 ^ (c & 7) * 16 ^ (c & 1) * 512) + (warp & 3) * 1024, v);
  }
  __syncthreads();
  float a_18[8];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    get_elements<float, 4, 4>(&a_18[c * 4], s19 + (i21 ^ (c & 1) * 64), 1024, [](float x, float y) { return x + y; });
  }
  float q_23[1];
  q_23[0] = q_12[0];
  q_23[0] = q_23[0] + shuffle_xor(q_23[0], 1);
  q_23[0] = q_23[0] + shuffle_xor(q_23[0], 2);
  q_23[0] = q_23[0] + shuffle_xor(q_23[0], 4);
  float rms_22[1];
  rms_22[0] = sqrt_fast(__fadd_rn(q_23[0] * 1.953125000e-03f, 9.999999747e-06f));
  f16* const to17 = t2 + static_cast<long long>(first1);
  {
    Vector<f16, 8> v;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = from_float<f16>(divide_fast(a_18[j], rms_22[0]));
    }
    store_vector<f16, 8>(to17 + i15 * 128 + i16, v);
  }
}

