extern "C" __global__ void __launch_bounds__(128) q0_block(const f16* __restrict__ t0, const f16* __restrict__ t1, const f16* __restrict__ t2, float* __restrict__ t3, float* __restrict__ t4, float* __restrict__ t5) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  unsigned char* const shared = dynamic_shared<unsigned char>();
  float* const s33 = reinterpret_cast<float*>(shared);
  grid_launch_dependents();
  const int first0 = int(blockIdx.x);
  const int first1 = int(blockIdx.z) * 2;
  const int first3 = int(blockIdx.y);
  const int i8 = lane >> 2 & 7;
  const int i9 = (lane & 3) * 4;
  const int i14 = (lane & 3) * 2;
  const int i30 = lane & 7;
  const int i31 = lane >> 3 & 1;
  const int i34 = (lane & 7) * 2;
  const int i35 = lane & 15;
  f16 q0_6[4];
  const f16* const at7 = t0 + static_cast<long long>(first0) * 12 + static_cast<long long>(first1) * 3;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    q0_6[r] = i8 < 2 && i9 + (r & 3) < 3 ? at7[i8 * 3 + i9 + (r & 3)] : f16{};
  }
  unsigned q0__pairs5[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    q0__pairs5[w] = pack<f16>(to_float(q0_6[w * 2]), to_float(q0_6[w * 2 + 1]));
  }
  f16 next_k0_11[4] = {};
  f16 k0_11[4] = {};
  float m_15[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    m_15[r] = (-infinity());
  }
  float l_18[1];
  l_18[0] = 0.000000000e+00f;
  float n_21[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    n_21[r] = 0.000000000e+00f;
  }
  f16 next_v0_24[4] = {};
  f16 v0_24[4] = {};
#pragma unroll 1
  for (int step = 0; step < 3; ++step) {
    if (step < 2) {
      const int iteration = step;
      const int first2 = int(blockIdx.y) * 4 + iteration * 2;
      const f16* const at12 = t1 + static_cast<long long>(first0) * 36 + static_cast<long long>(first2);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        next_k0_11[r] = i9 + (r & 3) < 3 && i8 < 2 ? at12[(i9 + (r & 3)) * 12 + i8] : f16{};
      }
      const f16* const at25 = t2 + static_cast<long long>(first0) * 60 + static_cast<long long>(first2) * 5;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        next_v0_24[r] = i14 + (r & 1) + (r >> 1 & 1) * 8 < 2 && i8 < 5 ? at25[(i14 + (r & 1) + (r >> 1 & 1) * 8) * 5 + i8] : f16{};
      }
    }
    if (0 < step) {
      const int iteration = step - 1;
      const int first2 = int(blockIdx.y) * 4 + iteration * 2;
      float s_4[4] = {};
      unsigned k0__pairs10[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        k0__pairs10[w] = pack<f16>(to_float(k0_11[w * 2]), to_float(k0_11[w * 2 + 1]));
      }
      mma_fragment<f16, true>(&s_4[0], &q0__pairs5[0], &k0__pairs10[0]);
      float top_13[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top_13[r] = (-infinity());
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (i14 + (r & 1) < 2) {
          top_13[r >> 1 & 1] = max_nan(top_13[r >> 1 & 1], s_4[r]);
        }
      }
      float top_17[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top_17[r] = top_13[r];
        top_17[r] = max_nan(top_17[r], shuffle_xor(top_17[r], 1));
        top_17[r] = max_nan(top_17[r], shuffle_xor(top_17[r], 2));
      }
      float m__factor16[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float old = m_15[r];
        m_15[r] = max_nan(m_15[r], top_17[r]);
        m__factor16[r] = shift_factor(old, m_15[r]);
      }
      l_18[0] = l_18[0] * m__factor16[0];
      float m_frame_20[1];
      m_frame_20[0] = m_15[0] == (-infinity()) ? 0.000000000e+00f : m_15[0];
      float e_19[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        e_19[r] = exp_shifted(s_4[r & 1], 1.000000000e+00f, m_frame_20[0]);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (i14 + (r & 1) + (r >> 1 & 1) * 8 < 2) {
          l_18[0] = l_18[0] + e_19[r];
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        n_21[r] = n_21[r] * m__factor16[r >> 1 & 1];
      }
      unsigned e__pairs22[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        e__pairs22[w] = pack<f16>(i14 + (w * 2 & 1) + (w * 2 >> 1 & 1) * 8 < 2 ? e_19[w * 2] : float{}, i14 + (w * 2 + 1 & 1) + (w * 2 + 1 >> 1 & 1) * 8 < 2 ? e_19[w * 2 + 1] : float{});
      }
      unsigned v0__pairs23[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        v0__pairs23[w] = pack<f16>(to_float(v0_24[w * 2]), to_float(v0_24[w * 2 + 1]));
      }
      mma_fragment<f16, true>(&n_21[0], &e__pairs22[0], &v0__pairs23[0]);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      k0_11[r] = next_k0_11[r];
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      v0_24[r] = next_v0_24[r];
    }
  }
  float* const to26 = t3 + static_cast<long long>(first0) * 12 + static_cast<long long>(first1) * 3 + static_cast<long long>(first3);
  if ((lane & 3) == 0 && (warp & 3) == 0) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (i8 + (c & 1) * 8 < 2) {
        to26[(i8 + (c & 1) * 8) * 3] = m_15[c];
      }
    }
  }
  float l_28[1];
  l_28[0] = l_18[0];
  l_28[0] = l_28[0] + shuffle_xor(l_28[0], 1);
  l_28[0] = l_28[0] + shuffle_xor(l_28[0], 2);
  float* const to27 = t4 + static_cast<long long>(first0) * 12 + static_cast<long long>(first1) * 3 + static_cast<long long>(first3);
  if ((lane & 3) == 0 && (warp & 3) == 0) {
    if (i8 < 2) {
      to27[i8 * 3] = l_28[0];
    }
  }
  if ((lane & 24) == 0 && (warp & 3) == 0) {
    {
      Vector<float, 2> v;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int r = j & 1;
        v[j] = n_21[r];
      }
      store_vector<float, 2>(s33 + i34, v);
    }
  }
  __syncthreads();
  float n_32[1];
  get_elements<float, 1>(&n_32[0], s33 + i35);
  float* const to29 = t5 + static_cast<long long>(first0) * 60 + static_cast<long long>(first1) * 15 + static_cast<long long>(first3) * 5;
  if ((lane & 16) == 0 && (warp & 3) == 0) {
    if (i30 < 5) {
      to29[i31 * 15 + i30] = n_32[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) q1_block(const float* __restrict__ t3, const float* __restrict__ t4, const float* __restrict__ t5, f16* __restrict__ t6) {
  const int lane = lane_index();
  const int warp = int(threadIdx.x) / 32;
  grid_launch_dependents();
  const int first0 = int(blockIdx.x);
  const int first1 = int(blockIdx.y) * 2;
  const int i5 = lane & 3;
  const int i6 = lane >> 2 & 1;
  const int i15 = lane >> 3 & 3;
  const int i16 = lane & 7;
  const int i17 = warp & 1;
  const int i22 = lane & 27 ^ (warp & 1) * 4;
  float top_2[1];
  top_2[0] = (-infinity());
  float m_3[1];
  const float* const at4 = t3 + static_cast<long long>(first0) * 12 + static_cast<long long>(first1) * 3;
  m_3[0] = i5 < 3 ? at4[i6 * 3 + i5] : float{};
  if (i5 < 3) {
    top_2[0] = max_nan(top_2[0], m_3[0]);
  }
  float ls_7[1];
  ls_7[0] = 0.000000000e+00f;
  float l_8[1];
  const float* const at9 = t4 + static_cast<long long>(first0) * 12 + static_cast<long long>(first1) * 3;
  l_8[0] = i5 < 3 ? at9[i6 * 3 + i5] : float{};
  float top_11[1];
  top_11[0] = top_2[0];
  top_11[0] = max_nan(top_11[0], shuffle_xor(top_11[0], 1));
  top_11[0] = max_nan(top_11[0], shuffle_xor(top_11[0], 2));
  float c_10[1];
  c_10[0] = exp_fast(__fsub_rn(m_3[0], top_11[0]));
  if (i5 < 3) {
    ls_7[0] = ls_7[0] + l_8[0] * c_10[0];
  }
  float ns_12[1];
  ns_12[0] = 0.000000000e+00f;
  float n_13[1];
  const float* const at14 = t5 + static_cast<long long>(first0) * 60 + static_cast<long long>(first1) * 15;
  n_13[0] = i15 < 3 && i16 < 5 ? at14[i17 * 15 + i15 * 5 + i16] : float{};
  float m_19[1];
  const float* const at20 = t3 + static_cast<long long>(first0) * 12 + static_cast<long long>(first1) * 3;
  m_19[0] = i15 < 3 ? at20[i17 * 3 + i15] : float{};
  float top_21[1];
  top_21[0] = shuffle(top_11[0], i22);
  float c_18[1];
  c_18[0] = exp_fast(__fsub_rn(m_19[0], top_21[0]));
  if (i15 < 3) {
    ns_12[0] = ns_12[0] + n_13[0] * c_18[0];
  }
  float ns_24[1];
  ns_24[0] = ns_12[0];
  ns_24[0] = ns_24[0] + shuffle_xor(ns_24[0], 8);
  ns_24[0] = ns_24[0] + shuffle_xor(ns_24[0], 16);
  float ls_25[1];
  ls_25[0] = ls_7[0];
  ls_25[0] = ls_25[0] + shuffle_xor(ls_25[0], 1);
  ls_25[0] = ls_25[0] + shuffle_xor(ls_25[0], 2);
  float ls_26[1];
  ls_26[0] = shuffle(ls_25[0], i22);
  f16* const to23 = t6 + static_cast<long long>(first0) * 20 + static_cast<long long>(first1) * 5;
  if ((lane & 24) == 0 && (warp & 2) == 0) {
    if (i16 < 5) {
      to23[i17 * 5 + i16] = from_float<f16>(divide_fast(ns_24[0], ls_26[0]));
    }
  }
}

